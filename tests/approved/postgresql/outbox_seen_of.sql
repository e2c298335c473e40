SELECT i.id
FROM unnest(?::text[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT FROM "public"."Sales_Orders_OutboxData" WHERE "MessageId" = i.id AND "PersistenceVersion" = ?::text OFFSET 0
) AS o
