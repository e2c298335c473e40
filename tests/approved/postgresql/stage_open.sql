INSERT INTO "public"."billing.Outgoing" (task, destination, headers) VALUES ('', '', ?)
