-- attempt_undo.sql · SQL Server · undoes an attempt that failed
-- What was locked before it stays locked. XACT_ABORT is on again for what follows.
ROLLBACK TRANSACTION attempt;
SET XACT_ABORT ON
