-- database.sql · SQL Server · the database we are connected to
-- out: its name
SELECT DB_NAME()
