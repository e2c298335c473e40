CREATE INDEX IF NOT EXISTS "Sales_Orders_OutboxData_Dispatched" ON "public"."Sales_Orders_OutboxData" ("Dispatched")
