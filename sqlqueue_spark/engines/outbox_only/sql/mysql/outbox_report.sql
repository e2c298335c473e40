-- outbox_report.sql · MySQL · what an outbox table holds
-- out: rows, rows not dispatched, when the oldest row was dispatched, the database's clock in UTC
SELECT COUNT(*),
       CAST(COALESCE(SUM(Dispatched = 0), 0) AS SIGNED),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       UTC_TIMESTAMP()
FROM {outbox}
