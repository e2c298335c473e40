DELETE FROM "public"."orders"
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM "public"."orders"
    WHERE seq BETWEEN ? AND ?
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
))
RETURNING id::text AS "Id",
          nullif(expires::timestamp, 'infinity') AS "Expires",
          headers::text AS "Headers",
          body AS "Body",
          seq::bigint AS "RowVersion",
          expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired
