-- isolation_serializable.sql · SQL Server · isolates the transactions of a connection: as if one transaction ran after the other
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE
