-- stage_hold.sql · PostgreSQL · takes a stage for a source, for as long as the session lives
-- in: the stage's full name, quoted
-- Of the session, not of the transaction: a sink wants to know that a source lives while it holds no batch. It waits for
-- lock_timeout, as the session of a process that has just died may not have ended yet. The 1 keeps it apart from create_lock.
SELECT pg_advisory_lock(hashtextextended(?, 1))
