SELECT task, sum(cardinality(ids))::bigint
FROM "public"."billing.Outgoing"
WHERE task = ANY (?::text[]) AND seq > ?
GROUP BY task
