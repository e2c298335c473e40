GRANT SELECT ON [dbo].[orders] TO [shop];
GRANT DELETE ON [dbo].[orders] TO [shop];
