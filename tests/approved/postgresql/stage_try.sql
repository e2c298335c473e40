INSERT INTO "public"."orders" ("Id", "Recoverable", "Expires", "Headers", "Body")
SELECT "Id", "Recoverable", "Expires", "Headers", "Body"
FROM (
    SELECT ids[1] AS id, expires[1] AS expires, headers[1] AS headers, bodies[1] AS body
    FROM "public"."billing.Outgoing"
    WHERE destination = :destination AND task = ANY (:tasks::text[])
    ORDER BY seq
    LIMIT 1
) AS message
