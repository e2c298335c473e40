-- isolation_read_committed.sql · PostgreSQL · isolates the transactions of a connection: a statement sees what was committed when it began
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED
