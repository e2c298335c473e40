GRANT USAGE ON SCHEMA "sales" TO "shop";
GRANT INSERT ON "public"."orders" TO "shop";
GRANT USAGE ON SEQUENCE "public"."orders_seq_seq" TO "shop";
