-- holders.sql · PostgreSQL · who holds rows of a range
-- in: object id of the table, first seq, last seq, database     out: session, login, host, program
SELECT DISTINCT a.pid, a.usename::text, coalesce(host(a.client_addr), 'local socket'), a.application_name
FROM {queue} AS q
JOIN pg_catalog.pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = q.xmax
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid AND a.pid <> pg_backend_pid()
WHERE q.tableoid = ?::oid AND q.seq BETWEEN ? AND ? AND current_database() = ?
