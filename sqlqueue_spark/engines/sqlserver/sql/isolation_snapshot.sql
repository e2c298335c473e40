-- isolation_snapshot.sql · SQL Server · isolates the transactions of a connection: a transaction sees what was committed when it began
-- Refused with error 3952 where the database does not allow it (ALTER DATABASE … SET ALLOW_SNAPSHOT_ISOLATION ON).
SET TRANSACTION ISOLATION LEVEL SNAPSHOT
