-- server.sql · SQL Server · who we are to the server, and what it is
-- out: login, database, product and version
SELECT COALESCE(SUSER_SNAME(), USER_NAME()),
       DB_NAME(),
       CONCAT(N'SQL Server ', CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), N', ',
              CAST(SERVERPROPERTY('Edition') AS nvarchar(128)))
