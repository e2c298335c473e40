CREATE UNIQUE INDEX ON "public"."billing.Outgoing" (task) WHERE task = ''
