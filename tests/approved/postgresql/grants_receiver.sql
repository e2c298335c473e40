GRANT USAGE ON SCHEMA "sales" TO "shop";
GRANT SELECT ON "public"."orders" TO "shop";
GRANT UPDATE (id) ON "public"."orders" TO "shop";
GRANT DELETE ON "public"."orders" TO "shop";
