-- outbox_clean.sql · SQL Server · forgets the next message ids that are old enough
-- in: seconds that an id is kept     out: number of rows
-- Never rows that are not dispatched: a .NET endpoint has yet to send what they hold. READPAST steps over rows that others
-- hold, so that nobody waits. It must meet their locks while it looks: the delete itself would wait. So the length of
-- Operations (always true) makes it look at the row and not only at an index key. 4,000 rows: about 5,000 locks may
-- escalate to a table lock. GETUTCDATE() is of the column's own type and the database's clock. FORCESEEK may stand in a
-- FROM clause, not beside DELETE.
WITH batch AS (
    SELECT TOP (4000) MessageId
    FROM {outbox} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE Dispatched = 1
      AND DispatchedAt < DATEADD(second, -CAST(? AS int), GETUTCDATE())
      AND COALESCE(DATALENGTH(Operations), 0) >= 0
    ORDER BY DispatchedAt
)
DELETE FROM batch
