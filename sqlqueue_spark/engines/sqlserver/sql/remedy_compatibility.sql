-- remedy_compatibility.sql · SQL Server · a remedy for people: lets the database understand OPENJSON
ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 130;
