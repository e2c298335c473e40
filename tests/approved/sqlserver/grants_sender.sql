GRANT INSERT ON [dbo].[orders] TO [shop];
