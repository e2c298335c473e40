-- isolation_repeatable_read.sql · PostgreSQL · isolates the transactions of a connection: what was read stays as it was
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ
