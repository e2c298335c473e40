INSERT INTO [dbo].[Sales_Orders_OutboxData] (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.MessageId, 1, GETUTCDATE(), CAST(? AS varchar(23)), N'[]'
FROM (
    SELECT DISTINCT MessageId
    FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (MessageId nvarchar(200) '$')
) AS i
ORDER BY i.MessageId
