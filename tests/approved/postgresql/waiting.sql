SELECT ((SELECT max(seq) FROM "public"."orders") - q.seq + 1)::bigint, q.headers::text, statement_timestamp() AT TIME ZONE 'UTC'
FROM "public"."orders" AS q
WHERE q.seq > ?
ORDER BY q.seq
LIMIT 1
