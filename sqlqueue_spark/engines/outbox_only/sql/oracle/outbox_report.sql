-- outbox_report.sql · Oracle · what an outbox table holds
-- out: rows, rows not dispatched, when the oldest row was dispatched, the database's clock in UTC
SELECT COUNT(*),
       COALESCE(SUM(CASE WHEN Dispatched = 0 THEN 1 ELSE 0 END), 0),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       SYS_EXTRACT_UTC(SYSTIMESTAMP)
FROM {outbox}
