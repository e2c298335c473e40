CREATE INDEX IF NOT EXISTS "Sales_Orders_OutboxData_DispatchedAt" ON "public"."Sales_Orders_OutboxData" ("DispatchedAt")
