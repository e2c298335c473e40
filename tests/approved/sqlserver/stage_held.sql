SELECT CAST(NULL AS int)
WHERE APPLOCK_TEST(N'public', LEFT(N'source of ' + CAST(? AS nvarchar(max)), 255), N'Exclusive', N'Session') = 0
