CREATE UNIQUE INDEX IF NOT EXISTS "billing.Outgoing_task_idx" ON "public"."billing.Outgoing" (task) WHERE task = ''
