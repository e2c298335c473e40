CREATE TABLE IF NOT EXISTS "public"."Sales_Orders_OutboxData" (
    "MessageId" varchar(200) PRIMARY KEY,
    "Dispatched" boolean NOT NULL DEFAULT false,
    "DispatchedAt" timestamp,
    "PersistenceVersion" varchar(23),
    "Operations" jsonb NOT NULL
)
