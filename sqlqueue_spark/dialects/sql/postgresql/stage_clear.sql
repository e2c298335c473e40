-- stage_clear.sql · PostgreSQL · empties a stage
-- TRUNCATE is part of the transaction, as everything here, and leaves no dead rows, of which each batch would leave as
-- many as it has messages.
TRUNCATE {stage}
