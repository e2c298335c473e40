INSERT INTO "public"."orders" ("Id", "Recoverable", "Expires", "Headers", "Body")
SELECT "Id", "Recoverable", "Expires", "Headers", "Body"
FROM (
    SELECT unnest(ids) AS id, unnest(expires) AS expires, unnest(headers) AS headers, unnest(bodies) AS body
    FROM (
        SELECT ids, expires, headers, bodies
        FROM "public"."billing.Outgoing"
        WHERE destination = :destination AND task = ANY (:tasks::text[]) AND seq > :after AND seq <= :up_to
        ORDER BY seq
    ) AS parts
) AS messages
