SELECT (SELECT MIN(RowVersion) FROM [dbo].[orders] WITH (READUNCOMMITTED)),
       (SELECT MAX(RowVersion) FROM [dbo].[orders] WITH (READUNCOMMITTED))
