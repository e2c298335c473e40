SELECT q.seq::bigint, q.id::text
FROM unnest(?::bigint[], ?::bigint[]) AS run (first, last)
CROSS JOIN LATERAL (SELECT seq, id FROM "public"."orders" WHERE seq BETWEEN run.first AND run.last OFFSET 0) AS q
