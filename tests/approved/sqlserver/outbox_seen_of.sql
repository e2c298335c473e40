SELECT j.MessageId
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (MessageId nvarchar(200) '$') AS j
INNER LOOP JOIN [dbo].[Sales_Orders_OutboxData] AS o WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON o.MessageId = j.MessageId
WHERE o.PersistenceVersion = CAST(? AS varchar(23))
OPTION (FAST 1)
