INSERT INTO "public"."orders" ("Id", "Recoverable", "Expires", "Headers", "Body")
SELECT "Id", "Recoverable", "Expires", "Headers", "Body"
FROM "public"."billing.Outgoing"
WHERE destination = ? AND task = ANY (?::text[]) AND seq > ? AND seq <= ?
ORDER BY seq
