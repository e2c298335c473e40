-- insert.sql · PostgreSQL · sends messages
-- in: arrays, as text, of Ids, times to be received (milliseconds or NULL), headers, bodies     out: number of rows
-- Needs INSERT on the table and USAGE on its sequence, not SELECT. Rows get their seq in the order of the arrays.
-- A time to be received counts from now by the database's clock. The tables have no optional columns here.
INSERT INTO {queue} (id, expires, headers, body)
SELECT m.id, statement_timestamp() AT TIME ZONE 'UTC' + m.ttl * interval '1 millisecond', m.headers, m.body
FROM unnest(?::uuid[], ?::bigint[], ?::text[], ?::bytea[]) WITH ORDINALITY AS m (id, ttl, headers, body, n)
ORDER BY m.n
