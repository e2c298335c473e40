-- create_lock.sql · PostgreSQL · makes installers of the same table wait for one another
-- in: the table's full name, quoted
-- CREATE TABLE IF NOT EXISTS alone is not safe in a race: it can end in a unique violation in the catalogue. The
-- lock is given back when the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended(?, 0))
