-- script_begin.sql · PostgreSQL · how a script that creates one table begins; create.sql or outbox_create.sql follows
-- in: the table's full name, quoted
-- One transaction a table, under the lock of create_lock.sql.
BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended(?, 0));
