SET XACT_ABORT OFF;
DECLARE @version varchar(23) = ?, @ids nvarchar(max) = CAST(? AS nvarchar(max)), @done bit = 0, @left int = 100;
DECLARE @added TABLE (MessageId nvarchar(200) NOT NULL PRIMARY KEY);
WHILE @done = 0
BEGIN
    BEGIN TRY
        INSERT INTO [dbo].[Sales_Orders_OutboxData] (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
        OUTPUT inserted.MessageId INTO @added (MessageId)
        SELECT i.MessageId, 1, GETUTCDATE(), @version, N'[]'
        FROM (SELECT DISTINCT MessageId FROM OPENJSON(@ids) WITH (MessageId nvarchar(200) '$')) AS i
        WHERE NOT EXISTS (
            SELECT 1
            FROM [dbo].[Sales_Orders_OutboxData] AS o WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
            WHERE o.MessageId = i.MessageId
        )
        ORDER BY i.MessageId;
        SET @done = 1;
    END TRY
    BEGIN CATCH
        SET @left -= 1;
        IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() <> 1 OR @left = 0
        BEGIN;
            THROW;
        END;
        DELETE FROM @added;
    END CATCH;
END;
SELECT j.MessageId
FROM OPENJSON(@ids) WITH (MessageId nvarchar(200) '$') AS j
INNER LOOP JOIN @added AS a ON a.MessageId = j.MessageId
