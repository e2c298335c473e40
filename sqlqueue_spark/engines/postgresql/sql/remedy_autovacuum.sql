-- remedy_autovacuum.sql · PostgreSQL · a remedy for people: lets the server free the room of deleted rows
ALTER TABLE {queue} RESET (autovacuum_enabled);
