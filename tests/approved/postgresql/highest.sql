SELECT max(seq)::bigint FROM "public"."orders"
