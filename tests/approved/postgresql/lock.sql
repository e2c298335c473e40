SELECT q.seq::bigint, q.bytes
FROM unnest(?::bigint[], ?::bigint[]) WITH ORDINALITY AS run (first, last, position)
CROSS JOIN LATERAL (
    SELECT seq, coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM "public"."orders"
    WHERE seq BETWEEN run.first AND run.last
    ORDER BY seq
    FOR UPDATE
) AS q
ORDER BY run.position, q.seq
