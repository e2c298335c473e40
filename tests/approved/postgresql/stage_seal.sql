UPDATE "public"."billing.Outgoing" SET headers = ? WHERE task = ''
