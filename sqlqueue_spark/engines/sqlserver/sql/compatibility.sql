-- compatibility.sql · SQL Server · whether the database knows all that is said to it
-- out: what is counted, how far it goes, how far it must go
-- OPENJSON came with level 130. It is the level of the database we are connected to that counts, wherever the queue
-- lies. By name: on Azure SQL the ids of the view are not those of DB_ID().
SELECT N'compatibility level', CAST(compatibility_level AS int), 130
FROM sys.databases
WHERE name = DB_NAME()
