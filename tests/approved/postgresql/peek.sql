SELECT id::text AS "Id",
       NULL::text AS "CorrelationId",
       NULL::text AS "ReplyToAddress",
       "Recoverable"::boolean AS "Recoverable",
       CASE WHEN expires BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
           THEN expires::timestamp END AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion",
       expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired
FROM ONLY "public"."orders"
WHERE seq > :after
ORDER BY seq
LIMIT :count
