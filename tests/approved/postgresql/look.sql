SELECT array_agg(seq::bigint), array_agg(false), array_agg(bytes)
FROM (
    SELECT seq, coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM "public"."orders"
    WHERE seq > ? AND seq <= ?
    ORDER BY seq
    LIMIT ?
) AS seen
