-- stage_create.sql · PostgreSQL · creates the table in which an atomic pipeline puts what it sends, until the batch is settled
-- Effect: none where the table is there already. One row, the mark, has no task: its headers say which
-- claim the stage belongs to and whose rows count.
CREATE TABLE IF NOT EXISTS {stage} (
    task text NOT NULL,
    destination text NOT NULL,
    id uuid,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq bigserial NOT NULL
)
