SELECT TOP (1) q.RowVersion, (SELECT MAX(RowVersion) FROM [dbo].[orders] WITH (READUNCOMMITTED)),
       CAST(q.Headers AS nvarchar(max)), SYSUTCDATETIME()
FROM [dbo].[orders] AS q WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE q.RowVersion > ?
ORDER BY q.RowVersion
OPTION (FAST 1)
