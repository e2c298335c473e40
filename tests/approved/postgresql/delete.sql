DELETE FROM "public"."orders"
WHERE ctid = ANY (ARRAY(
    SELECT q.ctid
    FROM unnest(?::bigint[], ?::bigint[]) AS run (first, last)
    CROSS JOIN LATERAL (SELECT ctid FROM "public"."orders" WHERE seq BETWEEN run.first AND run.last OFFSET 0) AS q
))
