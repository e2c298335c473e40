-- waiting.sql · SQL Server · what waits behind a row: two index probes
-- in: after which RowVersion     out: number of rows at most, headers of the oldest, the database's clock in UTC
-- Numbers of rows that were taken out of order are counted too; an exact count would read the whole backlog. Headers are
-- not read as READUNCOMMITTED: what lies off the row may be moved meanwhile, and error 7105 ends the connection, which
-- holds a claim. Hints as in read.sql.
SELECT TOP (1) (SELECT MAX(RowVersion) FROM {queue} WITH (READUNCOMMITTED)) - q.RowVersion + 1,
       CAST(q.Headers AS nvarchar(max)), SYSUTCDATETIME()
FROM {queue} AS q WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE q.RowVersion > ?
ORDER BY q.RowVersion
OPTION (FAST 1)
