DECLARE @resource nvarchar(255) = LEFT(N'source of ' + CAST(? AS nvarchar(max)), 255), @got int
EXEC @got = sys.sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Session'
IF @got = -1
BEGIN;
    THROW 51001, N'another session holds the stage', 1;
END
IF @got < -1
BEGIN;
    THROW 51000, N'the lock of the stage was refused', 1;
END
