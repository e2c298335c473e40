-- peek.sql · PostgreSQL · the first rows of a queue, locking nothing
-- in: how many     out: the eight columns of a message, and whether it is expired
-- Columns the table does not have arrive as NULL, and so does an infinite expiry.
SELECT id::text AS "Id",
       {CorrelationId}::text AS "CorrelationId",
       {ReplyToAddress}::text AS "ReplyToAddress",
       {Recoverable}::boolean AS "Recoverable",
       CASE WHEN isfinite(expires) THEN expires::timestamp END AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion",
       expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired
FROM {queue}
ORDER BY seq
LIMIT ?
