-- lock_timeout.sql · PostgreSQL · how long a statement waits for a lock, until the transaction ends
-- in: milliseconds
SELECT set_config('lock_timeout', ?::text, true)
