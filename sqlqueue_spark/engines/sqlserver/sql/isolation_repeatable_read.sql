-- isolation_repeatable_read.sql · SQL Server · isolates the transactions of a connection: what was read stays as it was
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ
