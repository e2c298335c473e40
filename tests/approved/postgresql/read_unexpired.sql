SELECT id::text AS "Id",
       nullif(expires::timestamp, 'infinity') AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion"
FROM "public"."orders"
WHERE seq BETWEEN ? AND ? AND (expires IS NULL OR expires > statement_timestamp() AT TIME ZONE 'UTC')
ORDER BY seq
