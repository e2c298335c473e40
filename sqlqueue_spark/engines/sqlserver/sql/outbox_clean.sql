-- outbox_clean.sql · SQL Server · forgets the next message ids that are old enough
-- in: seconds that an id is kept     out: number of rows
-- Never rows that are not dispatched: a .NET endpoint has yet to send what they hold. READPAST steps over rows that others
-- hold, so that nobody waits. It must meet their locks while it looks: the delete itself would wait. So the length of
-- Operations (always true) makes it look at the row and not only at an index key. 2,400 rows: message ids come in no order, so
-- that each has a page of the primary key to itself, and 4,800 locks on one index are fewer than the 5,000 that may escalate
-- to a table lock. GETUTCDATE() is of the column's own type and the database's clock. FORCESEEK may stand in a FROM clause,
-- not beside DELETE. DEADLOCK_PRIORITY, which ends with the batch: an endpoint that looks an id up goes from the key to the
-- row, we the other way, and it is not to lose. MAXDOP 1: the threads of a parallel plan would lock rows that stay.
SET DEADLOCK_PRIORITY LOW;
WITH batch AS (
    SELECT TOP (2400) MessageId
    FROM {outbox} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE Dispatched = 1
      AND DispatchedAt < DATEADD(second, -CAST(? AS int), GETUTCDATE())
      AND COALESCE(DATALENGTH(Operations), 0) >= 0
    ORDER BY DispatchedAt
)
DELETE FROM batch
OPTION (MAXDOP 1)
