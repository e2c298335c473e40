-- isolation_serializable.sql · PostgreSQL · isolates the transactions of a connection: as if one transaction ran after the other
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE
