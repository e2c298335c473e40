-- stage_clear.sql · SQL Server · empties a stage
-- TRUNCATE takes no lock a row. It waits for everybody who has the table open, be it for reading: it is run where nothing
-- depends on it and nothing is waited for (lock_timeout). It needs ALTER on the table.
TRUNCATE TABLE {stage}
