-- remedy_fsync.sql · PostgreSQL · a remedy for people: what is committed is on the disk, of every database of the server
ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();
