-- lock.sql · PostgreSQL · locks again what is left of a claim, waiting for rows that others hold
-- in: the first and the last seq of each run     out: seq, bytes
-- No SKIP LOCKED: a row left out here and rolled back there would later be deleted unprocessed. LATERAL: each
-- run is looked up in the index; as a plain join the planner may walk the whole table instead.
SELECT q.seq::bigint, q.bytes
FROM unnest(?::bigint[], ?::bigint[]) WITH ORDINALITY AS run (first, last, position)
CROSS JOIN LATERAL (
    SELECT seq, coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM {queue}
    WHERE seq BETWEEN run.first AND run.last
    ORDER BY seq
    FOR UPDATE
) AS q
ORDER BY run.position, q.seq
