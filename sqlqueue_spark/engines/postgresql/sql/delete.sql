-- delete.sql · PostgreSQL · deletes a claim that this transaction has locked
-- in: the first and the last seq of each run     out: number of rows
-- A run holds consecutive numbers that were all claimed, so nothing else can stand between its ends. By ctid,
-- which cannot change while the rows are locked: as a plain join the planner may walk the whole table instead.
DELETE FROM {queue}
WHERE ctid = ANY (ARRAY(
    SELECT q.ctid
    FROM unnest(?::bigint[], ?::bigint[]) AS run (first, last)
    CROSS JOIN LATERAL (SELECT ctid FROM {queue} WHERE seq BETWEEN run.first AND run.last OFFSET 0) AS q
))
