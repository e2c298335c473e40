ALTER SEQUENCE "public"."orders_seq_seq" AS bigint;
ALTER TABLE "public"."orders" ALTER COLUMN seq TYPE bigint;
