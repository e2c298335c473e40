-- catalog.sql · SQL Server · how the server spells the name of a database
-- in: its name in any spelling     out: its name; NULL where we may not know of it
-- Whether two spellings are one name is for the server's collation to say.
SELECT DB_NAME(DB_ID(CAST(? AS nvarchar(128))))
