SELECT id::text AS "Id",
       NULL::text AS "CorrelationId",
       NULL::text AS "ReplyToAddress",
       "Recoverable"::boolean AS "Recoverable",
       CASE WHEN isfinite(expires) THEN expires::timestamp END AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion",
       expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired
FROM "public"."orders"
WHERE seq > :after
ORDER BY seq
LIMIT :count
