-- attempt_check.sql · SQL Server · ends an attempt that went well
-- Constraints are checked by each statement, so nothing is left to fail. XACT_ABORT is on again for what follows.
SET XACT_ABORT ON
