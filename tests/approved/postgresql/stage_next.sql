SELECT max(seq)
FROM (
    SELECT seq, sum(cardinality(ids)) OVER (ORDER BY seq) AS messages
    FROM "public"."billing.Outgoing"
    WHERE destination = ? AND task = ANY (?::text[]) AND seq > ?
) AS next
WHERE messages <= ?
