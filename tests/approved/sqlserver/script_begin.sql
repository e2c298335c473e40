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
