-- read_unexpired.sql · PostgreSQL · reads the rows of a range that have not expired, locking nothing
-- in: first seq, last seq     out: the columns of a message
-- As read.sql, for a look at a queue that claims nothing.
SELECT id::text AS "Id",
       nullif(expires::timestamp, 'infinity') AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion"
FROM {queue}
WHERE seq BETWEEN ? AND ? AND (expires IS NULL OR expires > statement_timestamp() AT TIME ZONE 'UTC')
ORDER BY seq
