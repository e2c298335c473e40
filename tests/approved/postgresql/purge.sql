WITH batch AS MATERIALIZED (
    SELECT seq
    FROM "public"."orders"
    WHERE seq > ? AND seq <= ?
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
)
DELETE FROM "public"."orders" AS q
USING batch
WHERE q.seq = batch.seq
RETURNING q.seq
