-- outbox.sql · SQL Server · the outbox table

-- name: outbox_exists
-- Returns whether an outbox table is there.
-- With IGNORE_DUP_KEY the server drops a second row of an id without an error.
SELECT t.name, CAST(CASE WHEN EXISTS (
    SELECT 1
    FROM sys.indexes AS i
    JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.key_ordinal > 0
    JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
    WHERE i.object_id = t.object_id AND i.is_unique = 1 AND i.is_disabled = 0 AND i.has_filter = 0
      AND i.ignore_dup_key = 0
    GROUP BY i.index_id
    HAVING COUNT(*) = 1 AND MAX(c.name) = N'MessageId'
) THEN 1 ELSE 0 END AS bit)
FROM sys.tables AS t
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE s.name = :schema AND t.name = :name

-- name: outbox_create
-- Creates an endpoint's outbox table: that of the .NET persistence. The table is a heap: message ids come in
-- no order, and as a clustered key they would split pages all over.
CREATE TABLE {outbox} (
    MessageId nvarchar(200) NOT NULL PRIMARY KEY NONCLUSTERED,
    Dispatched bit NOT NULL DEFAULT 0,
    DispatchedAt datetime NULL,
    PersistenceVersion varchar(23) NOT NULL,
    Operations nvarchar(max) NOT NULL
)

-- name: outbox_index_dispatched_at
-- Creates the index that the cleanup goes by.
CREATE NONCLUSTERED INDEX Index_DispatchedAt ON {outbox} (DispatchedAt) WHERE Dispatched = 1

-- none: outbox_index_dispatched · the index of outbox_index_dispatched_at knows which rows are dispatched.

-- shared: sought
-- The ids of a list that are there.
-- READCOMMITTEDLOCK waits for an id that another transaction has inserted and not committed; row versions
-- would not show that id. So we send less in vain. FORCESEEK and LOOP make the server look up each id in the
-- primary key. FAST 1 keeps the server from reading ahead: it would keep the locks of ids that it has looked
-- up while it waits for the next one. The first condition finds the id in the key, by the collation of the
-- column. A column of the JSON has a collation too, and where the two differ they cannot be compared (error
-- 468). A text that is made of bytes takes on any column's collation:
-- https://learn.microsoft.com/sql/t-sql/statements/collation-precedence-transact-sql#functions-and-collation
-- The other conditions leave out an id that only the column's collation takes for the same (aB and Ab). BIN2
-- compares code by code, but leaves trailing blanks out of account, as = does in every collation; the length
-- counts them.
SELECT j.MessageId
FROM OPENJSON(CAST(:ids AS nvarchar(max))) WITH (MessageId nvarchar(200) '$') AS j
INNER LOOP JOIN {outbox} AS o WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
    ON o.MessageId = CAST(CAST(j.MessageId AS varbinary(400)) AS nvarchar(200))
    AND o.MessageId = j.MessageId COLLATE Latin1_General_BIN2
    AND DATALENGTH(o.MessageId) = DATALENGTH(j.MessageId)

-- name: outbox_seen
-- Returns which of some message ids are there.
{sought}
OPTION (FAST 1)

-- name: outbox_seen_of
-- Returns which of some message ids are there, written by one version.
-- The server reads the version in the row, behind the key.
{sought}
WHERE o.PersistenceVersion = CAST(:version AS varchar(23))
OPTION (FAST 1)

-- name: outbox_add
-- Remembers message ids.
-- An id that is there already is error 2627, and so are two that are the same only to the column's collation:
-- none of them is dropped without a word. The caller gives texts that are two to any collation, and cuts them
-- into statements in the order of their codes, as ORDER BY has it. At most 2,400 ids a statement, as in
-- delete: message ids come in no order, so each may have a page of the primary key to itself.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.MessageId, 1, GETUTCDATE(), CAST(:version AS varchar(23)), N'[]'
FROM OPENJSON(CAST(:ids AS nvarchar(max))) WITH (MessageId nvarchar(200) '$') AS i
ORDER BY i.MessageId COLLATE Latin1_General_BIN2
OPTION (MAX_GRANT_PERCENT = 10)

-- name: outbox_add_new
-- Remembers those of some message ids that are not there.
-- The look-up waits for an id that another transaction has inserted and not committed (READCOMMITTEDLOCK).
-- The insert waits likewise for an id that is inserted after the look-up: the insert then fails with a
-- duplicate, and the second look-up finds that id. The usual way is to keep key ranges under HOLDLOCK. That
-- would make senders of other ids wait, and take locks until they escalate. XACT_ABORT OFF lets the
-- transaction live on after the duplicate; the setting ends with the batch, because the batch has parameters.
-- After a failure the statement empties @added, because what OUTPUT has put there stays even when the insert
-- fails. @left: a duplicate of something other than an id, in an index that was added, or of an id that only
-- the column's collation takes for the same, would otherwise repeat for ever. Conditions and order as in
-- outbox_seen and outbox_add.
SET XACT_ABORT OFF;
DECLARE @version varchar(23) = :version, @ids nvarchar(max) = CAST(:ids AS nvarchar(max)), @done bit = 0,
    @left int = 100;
DECLARE @added TABLE (MessageId nvarchar(200) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
WHILE @done = 0
BEGIN
    BEGIN TRY
        INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
        OUTPUT inserted.MessageId INTO @added (MessageId)
        SELECT i.MessageId, 1, GETUTCDATE(), @version, N'[]'
        FROM OPENJSON(@ids) WITH (MessageId nvarchar(200) '$') AS i
        WHERE NOT EXISTS (
            SELECT 1
            FROM {outbox} AS o WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
            WHERE o.MessageId = CAST(CAST(i.MessageId AS varbinary(400)) AS nvarchar(200))
              AND o.MessageId = i.MessageId COLLATE Latin1_General_BIN2
              AND DATALENGTH(o.MessageId) = DATALENGTH(i.MessageId)
        )
        ORDER BY i.MessageId COLLATE Latin1_General_BIN2
        OPTION (MAX_GRANT_PERCENT = 10);
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
SELECT MessageId FROM @added

-- name: outbox_oldest
-- Returns who wrote the oldest rows that are dispatched.
-- READUNCOMMITTED as in length: a row that is not committed yet is none of the oldest.
SELECT o.PersistenceVersion, COUNT(*)
FROM (
    SELECT TOP (1000) PersistenceVersion
    FROM {outbox} WITH (READUNCOMMITTED)
    WHERE Dispatched = 1
    ORDER BY DispatchedAt
) AS o
GROUP BY o.PersistenceVersion

-- name: outbox_has_outcomes
-- Returns one row if outcomes of received rows are remembered.
-- READUNCOMMITTED waits for no lock: outbox_seen, which is asked next, waits for what is not committed. The
-- range is that of PostgreSQL; FORCESEEK goes by the primary key.
SELECT TOP (1) MessageId
FROM {outbox} WITH (READUNCOMMITTED, FORCESEEK)
WHERE MessageId >= N'outcomes' AND MessageId < N'outcomet'

-- name: outbox_clean
-- Forgets the next message ids that are old enough.
-- The length of Operations serves as that of the row in take, hints as there; 2,400 rows as in outbox_add.
-- GETUTCDATE() as in claim, DEADLOCK_PRIORITY as in purge: an endpoint that looks up an id goes
-- from the key to the row, and the cleanup goes the other way; the endpoint must not lose.
SET DEADLOCK_PRIORITY LOW;
WITH batch AS (
    SELECT TOP (2400) MessageId
    FROM {outbox} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE Dispatched = 1
      AND DispatchedAt < DATEADD(second, -CAST(:seconds AS int), GETUTCDATE())
      AND COALESCE(DATALENGTH(Operations), 0) >= 0
    ORDER BY DispatchedAt
)
DELETE FROM batch
OPTION (MAXDOP 1)

-- name: outbox_report
-- Returns what an outbox table holds.
-- READUNCOMMITTED as in length.
SELECT COUNT_BIG(*),
       COALESCE(SUM(CASE WHEN Dispatched = 0 THEN CAST(1 AS bigint) ELSE CAST(0 AS bigint) END), 0),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       SYSUTCDATETIME()
FROM {outbox} WITH (READUNCOMMITTED)
