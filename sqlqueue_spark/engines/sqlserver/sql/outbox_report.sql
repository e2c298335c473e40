-- outbox_report.sql · SQL Server · what an outbox table holds
-- out: rows, rows not dispatched, when the oldest row was dispatched, the database's clock in UTC
-- READUNCOMMITTED: it must neither wait for anyone nor make anyone wait.
SELECT COUNT_BIG(*),
       COALESCE(SUM(CASE WHEN Dispatched = 0 THEN CAST(1 AS bigint) ELSE CAST(0 AS bigint) END), 0),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       SYSUTCDATETIME()
FROM {outbox} WITH (READUNCOMMITTED)
