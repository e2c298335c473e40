-- clock.sql · SQL Server · the database's clock, by which messages expire
-- out: now, in UTC
SELECT SYSUTCDATETIME()
