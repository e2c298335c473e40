-- waiting.sql · PostgreSQL · what waits behind a row: two index probes
-- in: after which seq     out: number of rows at most, headers of the oldest, the database's clock in UTC
-- Numbers of rows that were taken out of order are counted too; an exact count would read the whole backlog.
SELECT ((SELECT max(seq) FROM {queue}) - q.seq + 1)::bigint, q.headers::text, statement_timestamp() AT TIME ZONE 'UTC'
FROM {queue} AS q
WHERE q.seq > ?
ORDER BY q.seq
LIMIT 1
