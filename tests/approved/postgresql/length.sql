SELECT count(*),
       count(*) FILTER (WHERE expires <= statement_timestamp() AT TIME ZONE 'UTC'),
       coalesce(sum(coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0)), 0)::bigint,
       (SELECT headers FROM "public"."orders" ORDER BY seq LIMIT 1),
       statement_timestamp() AT TIME ZONE 'UTC'
FROM "public"."orders"
