-- read.sql · PostgreSQL · reads the rows of a range, locking nothing
-- in: first seq, last seq     out: the columns of a message
-- The claim's locks do not hide rows from plain reads. The tables have no optional columns here; the
-- client adds them, as NULL.
-- A driver that takes its largest date for "never" writes infinity, which no reader of Arrow has a number for.
SELECT id::text AS "Id",
       nullif(expires::timestamp, 'infinity') AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion"
FROM {queue}
WHERE seq BETWEEN ? AND ?
ORDER BY seq
