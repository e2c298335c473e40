-- isolation_read_committed.sql · SQL Server · isolates the transactions of a connection: a statement sees what was committed when it began
SET TRANSACTION ISOLATION LEVEL READ COMMITTED
