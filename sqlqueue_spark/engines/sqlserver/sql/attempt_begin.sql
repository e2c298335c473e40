-- attempt_begin.sql · SQL Server · begins a part of the transaction that can be undone alone
-- With XACT_ABORT on, nearly every error would end the whole transaction, and its locks with it. The SELECT begins a
-- transaction where the driver leaves that to the first look at a table; without one nothing can be saved.
SET XACT_ABORT OFF;
IF @@TRANCOUNT = 0 SELECT TOP (0) name FROM sys.tables;
SAVE TRANSACTION attempt
