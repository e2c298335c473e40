-- remedy_index_expires.sql · SQL Server · a remedy for people: the index that expired rows are found by
CREATE NONCLUSTERED INDEX {index} ON {queue} (Expires) INCLUDE (Id, RowVersion);
