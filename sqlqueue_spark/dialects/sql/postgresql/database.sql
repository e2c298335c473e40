-- database.sql · PostgreSQL · the database we are connected to
-- out: its name
SELECT current_database()::text
