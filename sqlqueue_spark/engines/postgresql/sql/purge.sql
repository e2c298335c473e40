-- purge.sql · PostgreSQL · deletes the next rows, whatever they are
-- in: after which seq, up to which, how many     out: the seq of each deleted row
-- SKIP LOCKED steps over rows receivers hold: they stay, and nobody waits. MATERIALIZED: the rows are chosen once.
WITH batch AS MATERIALIZED (
    SELECT seq
    FROM {queue}
    WHERE seq > ? AND seq <= ?
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {queue} AS q
USING batch
WHERE q.seq = batch.seq
RETURNING q.seq
