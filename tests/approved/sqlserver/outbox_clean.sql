SET DEADLOCK_PRIORITY LOW;
WITH batch AS (
    SELECT TOP (2400) MessageId
    FROM [dbo].[Sales_Orders_OutboxData] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE Dispatched = 1
      AND DispatchedAt < DATEADD(second, -CAST(? AS int), GETUTCDATE())
      AND COALESCE(DATALENGTH(Operations), 0) >= 0
    ORDER BY DispatchedAt
)
DELETE FROM batch
OPTION (MAXDOP 1)
