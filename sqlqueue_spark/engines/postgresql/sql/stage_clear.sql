-- stage_clear.sql · PostgreSQL · empties a stage
-- TRUNCATE leaves no dead rows, of which each batch would leave as many as it has messages. It waits for everybody who has
-- the table open, be it for reading: it is run where nothing depends on it and nothing is waited for (lock_timeout).
TRUNCATE {stage}
