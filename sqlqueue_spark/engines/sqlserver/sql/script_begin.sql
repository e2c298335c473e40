-- script_begin.sql · SQL Server · how a script that creates one table begins; create.sql or outbox_create.sql follows
-- in: the table's full name, quoted
-- One transaction a table, under the lock of create_lock.sql. XACT_ABORT: an error ends it as a whole. QUOTED_IDENTIFIER:
-- sqlcmd turns it off, and with it off no filtered index can be made.
SET QUOTED_IDENTIFIER ON;
SET XACT_ABORT ON;
BEGIN TRANSACTION;
DECLARE @queue nvarchar(max) = ?, @got int;
DECLARE @resource nvarchar(255) = LEFT(@queue, 255);
EXEC @got = sys.sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction';
IF @got < 0
BEGIN;
    THROW 51000, N'Another session is creating this table; run the script again.', 1;
END;
IF OBJECT_ID(@queue, N'U') IS NULL
BEGIN
