SELECT max(seq)
FROM (
    SELECT seq
    FROM "public"."billing.Outgoing"
    WHERE destination = ? AND task = ANY (?::text[]) AND seq > ?
    ORDER BY seq
    LIMIT ?
) AS next
