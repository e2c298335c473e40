-- stage_held.sql · SQL Server · which other sessions hold a stage
-- in: the stage's full name, quoted     out: session (NULL: who it is takes VIEW SERVER STATE to know)
-- APPLOCK_TEST says 0 where the lock could not be had at once. The name is that of stage_hold.
SELECT CAST(NULL AS int)
WHERE APPLOCK_TEST(N'public', LEFT(N'source of ' + CAST(? AS nvarchar(max)), 255), N'Exclusive', N'Session') = 0
