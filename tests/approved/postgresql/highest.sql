SELECT max(seq) FROM "public"."orders"
