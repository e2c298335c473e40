-- look.sql · PostgreSQL · the next rows in seq order, locking nothing
-- in: after which seq, up to which, how many     out: one row of arrays: seq, false, bytes
-- For workers that take rows without a claim. Rows that others hold are seen too, and stepped over when they are taken;
-- only then is judged what has expired. As arrays the answer costs the client a fifth of what as many rows cost.
SELECT array_agg(seq::bigint), array_agg(false), array_agg(bytes)
FROM (
    SELECT seq, coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM {queue}
    WHERE seq > ? AND seq <= ?
    ORDER BY seq
    LIMIT ?
) AS seen
