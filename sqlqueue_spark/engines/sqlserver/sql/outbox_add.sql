-- outbox_add.sql · SQL Server · remembers message ids
-- in: version of the writer, message ids as JSON     out: number of rows
-- An id that is there is error 2627. DISTINCT: ids that are the same to the collation are one row. ORDER BY: in the same
-- order twins do not deadlock. At most 2,400 a statement: with a page each they make 4,800 locks on the primary key, and 5,000 may escalate to a table lock.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.MessageId, 1, GETUTCDATE(), CAST(? AS varchar(23)), N'[]'
FROM (
    SELECT DISTINCT MessageId
    FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (MessageId nvarchar(200) '$')
) AS i
ORDER BY i.MessageId
