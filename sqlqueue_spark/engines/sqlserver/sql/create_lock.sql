-- create_lock.sql · SQL Server · makes installers of the same table wait for one another
-- in: the table's full name, quoted
-- The lock is given back when the transaction ends; one must be open already, which the look for the table does
-- (a SELECT begins one, EXEC does not). A refused lock is a return code, not an error, until we make it one.
DECLARE @resource nvarchar(255) = LEFT(CAST(? AS nvarchar(max)), 255), @got int
EXEC @got = sys.sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction'
IF @got < 0
BEGIN;
    THROW 51000, N'another session has been creating this table for longer than lockTimeout', 1;
END
