CREATE UNIQUE NONCLUSTERED INDEX Index_Mark ON [dbo].[billing.Outgoing] (Task) WHERE Task = ''
