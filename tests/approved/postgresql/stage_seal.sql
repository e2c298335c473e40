UPDATE "public"."billing.Outgoing" SET mark = ? WHERE task = ''
