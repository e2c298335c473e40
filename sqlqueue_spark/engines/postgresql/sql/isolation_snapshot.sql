-- isolation_snapshot.sql · PostgreSQL · isolates the transactions of a connection: a transaction sees what was committed when it began
-- Called REPEATABLE READ here, which is a snapshot.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ
