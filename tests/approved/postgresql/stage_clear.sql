TRUNCATE "public"."billing.Outgoing"
