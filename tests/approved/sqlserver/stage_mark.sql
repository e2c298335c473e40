SELECT Headers FROM [dbo].[billing.Outgoing] WITH (UPDLOCK, ROWLOCK) WHERE Task = ''
