GRANT SELECT ON [dbo].[billing.Outgoing] TO [shop];
GRANT INSERT ON [dbo].[billing.Outgoing] TO [shop];
GRANT UPDATE (Headers) ON [dbo].[billing.Outgoing] TO [shop];
GRANT ALTER ON [dbo].[billing.Outgoing] TO [shop];
