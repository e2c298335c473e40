-- length.sql · SQL Server · how much stands in a queue
-- out: rows, expired, bytes of headers and bodies, headers of the oldest, the database's clock in UTC
-- READUNCOMMITTED: it must neither wait for anyone nor make anyone wait, so it counts rows that are just being sent
-- or received. The lengths of (max) columns are read without their pages; headers are read as committed rows, because those
-- off their row may be moved meanwhile, and error 7105 ends the connection. Hints as in peek.sql.
SELECT COUNT_BIG(*),
       COALESCE(SUM(CASE WHEN Expires <= GETUTCDATE() THEN CAST(1 AS bigint) ELSE CAST(0 AS bigint) END), 0),
       COALESCE(SUM(COALESCE(DATALENGTH(Headers), 0) + COALESCE(DATALENGTH(Body), 0)), 0),
       (SELECT TOP (1) CAST(Headers AS nvarchar(max)) FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
        ORDER BY RowVersion),
       SYSUTCDATETIME()
FROM {queue} WITH (READUNCOMMITTED)
