INSERT INTO "public"."orders" ("Id", "Recoverable", "Expires", "Headers", "Body")
SELECT "Id", "Recoverable", "Expires", "Headers", "Body"
FROM (
    SELECT pg_catalog.unnest(ids) AS id,
           pg_catalog.unnest(expires) AS expires,
           pg_catalog.unnest(headers) AS headers,
           pg_catalog.unnest(bodies) AS body
    FROM (
        SELECT ids, expires, headers, bodies
        FROM "public"."billing.Outgoing"
        WHERE destination = :destination AND task = ANY (:tasks::text[]) AND seq > :after AND seq <= :up_to
        ORDER BY seq
    ) AS parts
) AS messages
