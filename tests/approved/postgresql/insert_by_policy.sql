INSERT INTO "public"."orders" ("Id", "Recoverable", "Expires", "Headers", "Body")
SELECT "Id", "Recoverable", "Expires", "Headers", "Body"
FROM unnest(:ids::uuid[], :expires::timestamp[], :headers::text[], :bodies::bytea[]) WITH ORDINALITY
    AS m (id, expires, headers, body, number)
ORDER BY number
