-- database.sql · SQL Server · the database we are connected to
-- out: its name, whether it takes no changes
-- On a readable secondary replica every statement runs under SNAPSHOT and its hints are left out of account: a claim would
-- lock nothing there.
SELECT DB_NAME(),
       CAST(CASE WHEN CONVERT(nvarchar(20), DATABASEPROPERTYEX(DB_NAME(), 'Updateability')) = 'READ_ONLY' THEN 1 ELSE 0 END AS bit)
