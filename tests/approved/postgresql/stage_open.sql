INSERT INTO "public"."billing.Outgoing" (task, destination, mark) VALUES ('', '', ?)
