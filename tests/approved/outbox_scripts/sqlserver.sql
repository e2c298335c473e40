SET QUOTED_IDENTIFIER ON;
SET XACT_ABORT ON;
BEGIN TRANSACTION;
DECLARE @name nvarchar(776) = CAST(N'[dbo].[Shop_Sales_OutboxData]' AS nvarchar(776)), @got int;
DECLARE @resource nvarchar(255) = LEFT(@name, 255);
DECLARE @transports nvarchar(255) = LEFT(
    CONCAT(CASE WHEN PARSENAME(@name, 3) IS NULL THEN QUOTENAME(DB_NAME()) + N'.' END, @name, N'_lock'), 255
);
EXEC @got = sys.sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction';
IF @got >= 0
    EXEC @got = sys.sp_getapplock @Resource = @transports, @LockMode = 'Exclusive',
        @LockOwner = 'Transaction';
IF @got < 0
BEGIN;
    THROW 51000, N'Another session is creating this table; run the script again.', 1;
END;
IF OBJECT_ID(@name, N'U') IS NULL
BEGIN
CREATE TABLE [dbo].[Shop_Sales_OutboxData] (
    MessageId nvarchar(200) NOT NULL PRIMARY KEY NONCLUSTERED,
    Dispatched bit NOT NULL DEFAULT 0,
    DispatchedAt datetime NULL,
    PersistenceVersion varchar(23) NOT NULL,
    Operations nvarchar(max) NOT NULL
);
CREATE NONCLUSTERED INDEX Index_DispatchedAt ON [dbo].[Shop_Sales_OutboxData] (DispatchedAt) WHERE Dispatched = 1
END;
COMMIT TRANSACTION;
GO
