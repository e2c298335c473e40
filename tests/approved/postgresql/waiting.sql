SELECT q.seq::bigint, (SELECT max(seq)::bigint FROM "public"."orders"), q.headers::text, statement_timestamp() AT TIME ZONE 'UTC'
FROM "public"."orders" AS q
WHERE q.seq > ?
ORDER BY q.seq
LIMIT 1
