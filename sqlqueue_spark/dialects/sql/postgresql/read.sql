-- read.sql · PostgreSQL · reads the rows of a range, locking nothing
-- in: first seq, last seq     out: the eight columns of a message
-- The claim's locks do not hide rows from plain reads. Columns the table does not have arrive as NULL.
-- A driver that takes its largest date for "never" writes infinity, which no reader of Arrow has a number for.
SELECT id::text AS "Id",
       {CorrelationId}::text AS "CorrelationId",
       {ReplyToAddress}::text AS "ReplyToAddress",
       {Recoverable}::boolean AS "Recoverable",
       nullif(expires::timestamp, 'infinity') AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion"
FROM {queue}
WHERE seq BETWEEN ? AND ?
ORDER BY seq
