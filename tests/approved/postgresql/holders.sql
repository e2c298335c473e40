SELECT DISTINCT a.pid, a.usename::text, coalesce(host(a.client_addr), 'local socket'), a.application_name
FROM "public"."orders" AS q
JOIN pg_catalog.pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = q.xmax
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid AND a.pid <> pg_backend_pid()
WHERE q.tableoid = ?::oid AND q.seq BETWEEN ? AND ? AND current_database() = ?
