-- waiting.sql · PostgreSQL · what waits behind a row: two index probes
-- in: after which seq     out: the first seq that waits, the highest, headers of the oldest, the database's clock in UTC
-- The caller counts from one to the other: the number of rows at most, for those that were taken out of order are counted
-- too; an exact count would read the whole backlog. Not here: the two can be further apart than a bigint can say.
SELECT q.seq::bigint, (SELECT max(seq)::bigint FROM {queue}), q.headers::text, statement_timestamp() AT TIME ZONE 'UTC'
FROM {queue} AS q
WHERE q.seq > ?
ORDER BY q.seq
LIMIT 1
