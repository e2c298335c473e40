INSERT INTO "public"."orders" (id, expires, headers, body)
SELECT m.id, statement_timestamp() AT TIME ZONE 'UTC' + m.ttl * interval '1 millisecond', m.headers, m.body
FROM unnest(?::uuid[], ?::bigint[], ?::text[], ?::bytea[]) WITH ORDINALITY AS m (id, ttl, headers, body, n)
ORDER BY m.n
