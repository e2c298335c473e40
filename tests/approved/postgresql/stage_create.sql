CREATE TABLE IF NOT EXISTS "public"."billing.Outgoing" (
    task text NOT NULL,
    destination text NOT NULL,
    id uuid,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq bigserial NOT NULL
)
