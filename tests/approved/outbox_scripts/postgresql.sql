BEGIN;
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('"public"."Shop_Sales_OutboxData"', 0));
CREATE TABLE IF NOT EXISTS "public"."Shop_Sales_OutboxData" (
    "MessageId" varchar(200) PRIMARY KEY,
    "Dispatched" boolean NOT NULL DEFAULT false,
    "DispatchedAt" timestamp,
    "PersistenceVersion" varchar(23),
    "Operations" jsonb NOT NULL
);
CREATE INDEX IF NOT EXISTS "Shop_Sales_OutboxData_DispatchedAt" ON "public"."Shop_Sales_OutboxData" ("DispatchedAt");
CREATE INDEX IF NOT EXISTS "Shop_Sales_OutboxData_Dispatched" ON "public"."Shop_Sales_OutboxData" ("Dispatched")
;
COMMIT;
