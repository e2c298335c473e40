SELECT array_agg(seq::bigint), array_agg(expired), array_agg(bytes)
FROM (
    SELECT seq,
           expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired,
           coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM "public"."orders"
    WHERE seq > ? AND seq <= ?
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
) AS locked
