-- create.sql · PostgreSQL · creates a queue table: the classic one, but bigserial
-- Effect: none where the table is there already. A serial stops at 2,147,483,647 rows in the table's life, which is
-- five days at 5,000 messages a second. Constraints are not named: index names are per schema, and PostgreSQL finds
-- free ones that carry the table's name.
CREATE TABLE IF NOT EXISTS {queue} (
    id uuid PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq bigserial UNIQUE
)
