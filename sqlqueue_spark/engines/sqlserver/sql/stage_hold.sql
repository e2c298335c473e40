-- stage_hold.sql · SQL Server · takes a stage for a source, for as long as the session lives
-- in: the stage's full name, quoted
-- Of the session, not of the transaction: a sink wants to know that a source lives while it holds no batch. It waits for
-- LOCK_TIMEOUT, as the session of a process that has just died may not have ended yet. A lock that is refused is a return
-- code, not an error: 1222 is what the server says of other locks. The word in front keeps it apart from create_lock.
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
