-- outbox_add_new.sql · SQL Server · remembers those of some message ids that are not there
-- in: version of the writer, message ids as JSON     out: message id, as it was asked for, of each that was inserted
-- The look waits for an id that somebody else has inserted and not committed (READCOMMITTEDLOCK), and so does the insert
-- for one that comes between look and insert: then it is a duplicate, and the second look finds it. The usual way, key
-- ranges kept under HOLDLOCK, would make senders of other ids wait, and take so many locks that they escalate.
-- XACT_ABORT OFF lets the transaction live on after the duplicate; it is undone when the batch ends, which has
-- parameters. @added is emptied, as what OUTPUT has said stands even when the statement fails. INNER LOOP JOIN: the JSON
-- is read once. @left: a duplicate of something else than an id, in an index that somebody has added, would never end.
SET XACT_ABORT OFF;
DECLARE @version varchar(23) = ?, @ids nvarchar(max) = CAST(? AS nvarchar(max)), @done bit = 0, @left int = 100;
DECLARE @added TABLE (MessageId nvarchar(200) NOT NULL PRIMARY KEY);
WHILE @done = 0
BEGIN
    BEGIN TRY
        INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
        OUTPUT inserted.MessageId INTO @added (MessageId)
        SELECT i.MessageId, 1, GETUTCDATE(), @version, N'[]'
        FROM (SELECT DISTINCT MessageId FROM OPENJSON(@ids) WITH (MessageId nvarchar(200) '$')) AS i
        WHERE NOT EXISTS (
            SELECT 1
            FROM {outbox} AS o WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
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
