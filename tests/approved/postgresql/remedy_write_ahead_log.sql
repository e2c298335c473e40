ALTER TABLE "public"."orders" SET LOGGED;
