-- ids.sql · PostgreSQL · the row ids of some rows, to prove that a claim is still the same rows
-- in: the first and the last seq of each run     out: seq, id
-- OFFSET 0 keeps the look-up of each run apart: as a plain join the planner may walk the whole table instead.
SELECT q.seq::bigint, q.id::text
FROM unnest(?::bigint[], ?::bigint[]) AS run (first, last)
CROSS JOIN LATERAL (SELECT seq, id FROM {queue} WHERE seq BETWEEN run.first AND run.last OFFSET 0) AS q
