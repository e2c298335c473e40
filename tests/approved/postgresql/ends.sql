SELECT min(seq)::bigint, max(seq)::bigint FROM "public"."orders"
