-- waiting.sql · SQL Server · what waits behind a row: two index probes
-- in: after which RowVersion     out: the first RowVersion that waits, the highest, headers of the oldest, the database's
-- clock in UTC
-- The caller counts from one to the other: the number of rows at most, for those that were taken out of order are counted
-- too; an exact count would read the whole backlog. Not here: the two can be further apart than a bigint can say (error
-- 8115). Headers are not read as READUNCOMMITTED: what lies off the row may be moved meanwhile, and error 7105 ends the
-- connection, which holds a claim. Hints as in read.sql.
SELECT TOP (1) q.RowVersion, (SELECT MAX(RowVersion) FROM {queue} WITH (READUNCOMMITTED)),
       CAST(q.Headers AS nvarchar(max)), SYSUTCDATETIME()
FROM {queue} AS q WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE q.RowVersion > ?
ORDER BY q.RowVersion
OPTION (FAST 1)
