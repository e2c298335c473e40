CREATE TABLE IF NOT EXISTS "public"."orders" (
    id uuid PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq bigserial UNIQUE
)
