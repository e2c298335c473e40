-- stage_clear.sql · SQL Server · empties a stage
-- TRUNCATE is part of the transaction, as everything here, and takes no lock a row. It needs ALTER on the table.
TRUNCATE TABLE {stage}
