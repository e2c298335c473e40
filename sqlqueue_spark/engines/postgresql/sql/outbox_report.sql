-- outbox_report.sql · PostgreSQL · what an outbox table holds
-- out: rows, rows not dispatched, when the oldest row was dispatched, the database's clock in UTC
SELECT count(*),
       count(*) FILTER (WHERE NOT "Dispatched"),
       min("DispatchedAt") FILTER (WHERE "Dispatched"),
       statement_timestamp() AT TIME ZONE 'UTC'
FROM {outbox}
