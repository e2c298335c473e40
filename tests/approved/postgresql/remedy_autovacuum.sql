ALTER TABLE "public"."orders" RESET (autovacuum_enabled);
