CREATE UNIQUE INDEX CONCURRENTLY "Index_RowVersion" ON "public"."orders" (seq);
