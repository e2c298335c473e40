SELECT N'compatibility level', CAST(compatibility_level AS int), 130
FROM sys.databases
WHERE name = DB_NAME()
