-- remedy_write_ahead_log.sql · PostgreSQL · a remedy for people: a table whose rows outlive a crash of the server
-- Every row is written anew and everybody waits meanwhile: quick when the queue is nearly empty.
ALTER TABLE {queue} SET LOGGED;
