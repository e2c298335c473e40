-- take.sql · PostgreSQL · deletes the rows of a range and returns them
-- in: first seq, last seq, how many     out: the columns of a message, and whether it is expired, in any order
-- SKIP LOCKED steps over rows that others hold: they stay, and nobody waits. By ctid, which cannot change while the rows
-- are locked: joined by seq, each row is sought in the index once more, which takes half as long again. At most as many
-- as were planned, for others may have come up in between. Columns as in read.sql.
DELETE FROM {queue}
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM {queue}
    WHERE seq BETWEEN ? AND ?
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
))
RETURNING id::text AS "Id",
          nullif(expires::timestamp, 'infinity') AS "Expires",
          headers::text AS "Headers",
          body AS "Body",
          seq::bigint AS "RowVersion",
          expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired
