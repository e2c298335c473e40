CREATE TABLE IF NOT EXISTS "public"."billing.Outgoing" (
    task text NOT NULL,
    destination text NOT NULL,
    ids uuid[],
    expires timestamp[],
    headers text[],
    bodies bytea[],
    mark text,
    seq bigserial NOT NULL
)
