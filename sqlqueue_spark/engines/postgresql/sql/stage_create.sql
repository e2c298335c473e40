-- stage_create.sql · PostgreSQL · creates the table in which an atomic pipeline puts what it sends, until the batch is settled
-- Effect: none where the table is there already. A row holds a task's messages for one destination, as many as go out in one
-- transaction, column by column: to write them so and to take them apart again costs half of what as many rows cost. One
-- row, the mark, has no task: it says which claim the stage belongs to and whose rows count.
CREATE TABLE IF NOT EXISTS {stage} (
    task text NOT NULL,
    destination text NOT NULL,
    ids uuid[],
    expires timestamp[],
    headers text[],
    bodies bytea[],
    mark text,
    seq bigserial NOT NULL
)
