-- purge_expired.sql · PostgreSQL · deletes the next expired rows
-- in: after which seq, up to which, how many     out: the seq of each deleted row
-- Expired is judged by the database's clock. There is no index on expires: the rows are met in seq order, each only
-- once, because the next batch begins after this one. Else as purge.sql.
WITH batch AS MATERIALIZED (
    SELECT seq
    FROM {queue}
    WHERE seq > ? AND seq <= ? AND expires <= statement_timestamp() AT TIME ZONE 'UTC'
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {queue} AS q
USING batch
WHERE q.seq = batch.seq
RETURNING q.seq
