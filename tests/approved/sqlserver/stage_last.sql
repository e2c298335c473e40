SELECT MAX(RowVersion) FROM [dbo].[billing.Outgoing] WITH (READUNCOMMITTED)
