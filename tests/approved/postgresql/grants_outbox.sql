GRANT USAGE ON SCHEMA "sales" TO "shop";
GRANT SELECT ON "public"."Sales_Orders_OutboxData" TO "shop";
GRANT INSERT ON "public"."Sales_Orders_OutboxData" TO "shop";
GRANT UPDATE ("PersistenceVersion") ON "public"."Sales_Orders_OutboxData" TO "shop";
GRANT DELETE ON "public"."Sales_Orders_OutboxData" TO "shop";
