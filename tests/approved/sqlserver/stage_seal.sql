UPDATE [dbo].[billing.Outgoing] WITH (ROWLOCK) SET Headers = ? WHERE Task = ''
