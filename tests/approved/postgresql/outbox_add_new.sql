INSERT INTO "public"."Sales_Orders_OutboxData" ("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion", "Operations")
SELECT i.id, true, statement_timestamp() AT TIME ZONE 'UTC', ?::text, '[]'::jsonb
FROM unnest(?::text[]) AS i (id)
ON CONFLICT ("MessageId") DO NOTHING
RETURNING "MessageId"
