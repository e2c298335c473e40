GRANT USAGE ON SCHEMA "sales" TO "shop";
GRANT SELECT ON "public"."billing.Outgoing" TO "shop";
GRANT INSERT ON "public"."billing.Outgoing" TO "shop";
GRANT UPDATE (mark) ON "public"."billing.Outgoing" TO "shop";
GRANT TRUNCATE ON "public"."billing.Outgoing" TO "shop";
GRANT USAGE ON SEQUENCE "public"."orders_seq_seq" TO "shop";
