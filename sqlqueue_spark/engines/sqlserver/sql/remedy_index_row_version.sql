-- remedy_index_row_version.sql · SQL Server · a remedy for people: the index that receiving goes by
-- Nonclustered: it can be added whether or not something else clusters the table. Senders wait while it is built.
CREATE NONCLUSTERED INDEX {index} ON {queue} (RowVersion);
