DECLARE @resource nvarchar(255) = LEFT(CAST(? AS nvarchar(max)), 255), @got int
EXEC @got = sys.sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction'
IF @got < 0
BEGIN;
    THROW 51000, N'another session has been creating this table for longer than lockTimeout', 1;
END
