-- outbox.sql · SQL Server · the outbox table

-- name: outbox_exists
-- whether an outbox table is there
-- in: schema, table     out: its name
SELECT t.name
FROM sys.tables AS t
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE s.name = ? AND t.name = ?

-- name: outbox_create
-- creates an endpoint's outbox table: that of the .NET persistence
-- The caller has looked, under the lock, that it is not there. A heap: message ids come in no order, so as a clustered key
-- they would split pages all over.
CREATE TABLE {outbox} (
    MessageId nvarchar(200) NOT NULL PRIMARY KEY NONCLUSTERED,
    Dispatched bit NOT NULL DEFAULT 0,
    DispatchedAt datetime NULL,
    PersistenceVersion varchar(23) NOT NULL,
    Operations nvarchar(max) NOT NULL
)

-- name: outbox_index_dispatched_at
-- the index that the cleanup goes by
CREATE NONCLUSTERED INDEX Index_DispatchedAt ON {outbox} (DispatchedAt) WHERE Dispatched = 1

-- name: outbox_index_dispatched
-- nothing to do: outbox_index_dispatched_at knows what is dispatched

-- name: outbox_seen
-- which of some message ids are there
-- in: message ids as JSON     out: message id, as it was asked for
-- READCOMMITTEDLOCK waits for an id that somebody else has inserted and not committed, which row versions would not
-- show: the less is sent in vain. FORCESEEK and LOOP: each id is looked up in the primary key. FAST 1:
-- no reading ahead, which would keep the locks of ids that were looked up while the next one is waited for.
SELECT j.MessageId
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (MessageId nvarchar(200) '$') AS j
INNER LOOP JOIN {outbox} AS o WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON o.MessageId = j.MessageId
OPTION (FAST 1)

-- name: outbox_seen_of
-- which of some message ids are there, written by one version
-- in: message ids as JSON, the version of their writer     out: message id, as it was asked for
-- Rows of others say nothing here: what a .NET endpoint has handled was not sent by us. Else as outbox_seen; the version is
-- looked at in the row, behind the key.
SELECT j.MessageId
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (MessageId nvarchar(200) '$') AS j
INNER LOOP JOIN {outbox} AS o WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON o.MessageId = j.MessageId
WHERE o.PersistenceVersion = CAST(? AS varchar(23))
OPTION (FAST 1)

-- name: outbox_add
-- remembers message ids
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

-- name: outbox_add_new
-- remembers those of some message ids that are not there
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

-- name: outbox_added
-- nothing to do: outbox_add_new tells itself what it has inserted

-- name: outbox_oldest
-- who wrote the oldest rows that are dispatched
-- out: version of the writer, number of rows, of the 1,000 oldest ones
-- They are found by the index on DispatchedAt, however many rows there are. READUNCOMMITTED: it must neither wait for anyone
-- nor make anyone wait; a row that is not committed yet is none of the oldest.
SELECT o.PersistenceVersion, COUNT(*)
FROM (
    SELECT TOP (1000) PersistenceVersion
    FROM {outbox} WITH (READUNCOMMITTED)
    WHERE Dispatched = 1
    ORDER BY DispatchedAt
) AS o
GROUP BY o.PersistenceVersion

-- name: outbox_clean
-- forgets the next message ids that are old enough
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

-- name: outbox_report
-- what an outbox table holds
-- out: rows, rows not dispatched, when the oldest row was dispatched, the database's clock in UTC
-- READUNCOMMITTED: it must neither wait for anyone nor make anyone wait.
SELECT COUNT_BIG(*),
       COALESCE(SUM(CASE WHEN Dispatched = 0 THEN CAST(1 AS bigint) ELSE CAST(0 AS bigint) END), 0),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       SYSUTCDATETIME()
FROM {outbox} WITH (READUNCOMMITTED)
