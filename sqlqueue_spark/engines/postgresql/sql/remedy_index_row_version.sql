-- remedy_index_row_version.sql · PostgreSQL · a remedy for people: the index that receiving goes by
-- CONCURRENTLY blocks nobody; it cannot run inside a transaction.
CREATE UNIQUE INDEX CONCURRENTLY {index} ON {queue} (seq);
