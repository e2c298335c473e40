SELECT max(seq) FROM "public"."billing.Outgoing"
