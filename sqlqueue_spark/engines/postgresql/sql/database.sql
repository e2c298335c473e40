-- database.sql · PostgreSQL · the database we are connected to
-- out: its name, whether it takes no changes: the server is a standby
SELECT current_database()::text, pg_is_in_recovery()
