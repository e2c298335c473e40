-- admin.sql · SQL Server · what people do to queues: create, measure, look into, purge

-- name: server
-- Returns who we are to the server, what the server is, and whether it understands all our statements.
-- OPENJSON came with level 130. What counts is the level of the database that we are connected to, wherever
-- the queue lies. The statement finds that database by name, because on Azure SQL the ids of the view are not
-- those of DB_ID().
SELECT COALESCE(SUSER_SNAME(), USER_NAME()),
       DB_NAME(),
       CONCAT(N'SQL Server ', CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), N', ',
              CAST(SERVERPROPERTY('Edition') AS nvarchar(128))),
       N'compatibility level',
       CAST(compatibility_level AS int),
       130
FROM sys.databases
WHERE name = DB_NAME()

-- name: clock
-- Returns the time of the database's clock, by which messages expire.
SELECT SYSUTCDATETIME()

-- name: schema
-- Returns whether a schema is there.
SELECT name FROM {catalog}.sys.schemas WHERE name = :schema

-- name: create_schema
-- A remedy for people: creates the schema that an address names.
CREATE SCHEMA {schema}

-- shared: creation_locks
-- The server frees the locks when the transaction ends. The second lock is that of the transport's own
-- installer, which calls it after the table's full name, with that of its database, so that the two of us do
-- not create one table at once (CreateQueueText in https://github.com/Particular/NServiceBus.SqlServer,
-- SqlServerConstants.cs). sp_getapplock reports a refused lock as a return code, and THROW makes it an error.
DECLARE @name nvarchar(776) = CAST(:name AS nvarchar(776)), @got int;
DECLARE @resource nvarchar(255) = LEFT(@name, 255);
DECLARE @transports nvarchar(255) = LEFT(
    CONCAT(CASE WHEN PARSENAME(@name, 3) IS NULL THEN QUOTENAME(DB_NAME()) + N'.' END, @name, N'_lock'), 255
);
EXEC @got = sys.sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction';
IF @got >= 0
    EXEC @got = sys.sp_getapplock @Resource = @transports, @LockMode = 'Exclusive',
        @LockOwner = 'Transaction';

-- name: create_lock
-- Makes installers of the same table wait for one another.
-- A transaction must be open already; the caller has opened it by looking for the table (a SELECT begins one,
-- EXEC does not). -1 means that it has waited for LOCK_TIMEOUT.
{creation_locks}
IF @got = -1
BEGIN;
    THROW 51001, N'another session has been creating this table for longer than lockTimeout', 1;
END
IF @got < -1
BEGIN;
    THROW 51000, N'the lock of the table was refused', 1;
END

-- shared: queue_columns
-- There is no primary key, as in the transport's own tables: Ids may repeat.
Id uniqueidentifier NOT NULL,
    CorrelationId varchar(255) NULL,
    ReplyToAddress varchar(255) NULL,
    Recoverable bit NOT NULL,
    Expires datetime NULL,
    Headers nvarchar(max) NOT NULL,
    Body varbinary(max) NULL,
    RowVersion bigint IDENTITY(1,1) NOT NULL

-- name: create
-- Creates a queue table: the classic one. The clustered index keeps rows in RowVersion order and gives pages
-- back as they empty, which a heap does not. Index_Expires finds expired rows without a scan.
CREATE TABLE {queue} (
    {queue_columns}
);
CREATE CLUSTERED INDEX Index_RowVersion ON {queue} (RowVersion);
CREATE NONCLUSTERED INDEX Index_Expires ON {queue} (Expires) INCLUDE (Id, RowVersion);

-- name: create_heap
-- Creates a queue table: the one that the .NET installer makes since 2020. The transport's authors gave the
-- clustered index up for speed (https://github.com/Particular/NServiceBus.SqlServer/pull/613). A heap keeps
-- the pages of deleted rows until it is rebuilt, each claimed row costs two locks, and a claim among rows of
-- others is made twice. So this shape is not the default.
CREATE TABLE {queue} (
    {queue_columns}
);
CREATE NONCLUSTERED INDEX Index_RowVersion ON {queue} (RowVersion);
CREATE NONCLUSTERED INDEX Index_Expires ON {queue} (Expires) INCLUDE (Id, RowVersion)
    WHERE Expires IS NOT NULL;

-- name: script_begin
-- Begins a script that creates one table; create, stage_create or outbox_create follows.
-- Each table has a transaction of its own, under the locks of create_lock. XACT_ABORT: an error ends the
-- whole transaction. QUOTED_IDENTIFIER: sqlcmd turns it off, and then no filtered index can be made.
SET QUOTED_IDENTIFIER ON;
SET XACT_ABORT ON;
BEGIN TRANSACTION;
{creation_locks}
IF @got < 0
BEGIN;
    THROW 51000, N'Another session is creating this table; run the script again.', 1;
END;
IF OBJECT_ID(@name, N'U') IS NULL
BEGIN

-- name: script_end
-- Ends a script that creates one table.
-- GO ends the batch, so that the next table's variables may have the same names.
END;
COMMIT TRANSACTION;
GO

-- name: length
-- Returns how much is in a queue.
-- READUNCOMMITTED: the statement must neither wait for anyone nor make anyone wait. So it also counts rows
-- that are just being sent or received. The server knows the lengths of (max) columns without reading their
-- pages.
SELECT COUNT_BIG(*),
       COALESCE(SUM(CASE WHEN Expires <= GETUTCDATE() THEN CAST(1 AS bigint) ELSE CAST(0 AS bigint) END), 0),
       COALESCE(SUM(COALESCE(DATALENGTH(Headers), 0) + COALESCE(DATALENGTH(Body), 0)), 0),
       SYSUTCDATETIME()
FROM {queue} WITH (READUNCOMMITTED)

-- name: count_up_to
-- Counts the rows of a queue, and stops at a number.
-- READUNCOMMITTED as in length.
SELECT COUNT_BIG(*)
FROM (SELECT TOP (:most) 1 AS one FROM {queue} WITH (READUNCOMMITTED)) AS counted

-- name: peek
-- Returns the next rows of a queue.
-- Locks, hints and columns as in read, so the caller asks for at most 2,400 rows at once, and fetches them
-- all. FORCESEEK: by a plan that was made while the table was empty the server would scan and sort all that
-- stands there, and lock each row on the way.
SELECT {message},
       CAST(CASE WHEN Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion > :after
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
OPTION (FAST 1)

-- name: peek_by_scan
-- Returns what peek does, for a table without an index on RowVersion.
-- FORCESEEK would be error 8622. So a table that lacks the index can be looked into before it is made.
-- MAX_GRANT_PERCENT as in stage_count: the server sorts whole messages.
SELECT {message},
       CAST(CASE WHEN Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE RowVersion > :after
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
OPTION (MAX_GRANT_PERCENT = 10)

-- name: peek_headers
-- Returns the next rows of a queue without their bodies.
-- The server knows the length of a (max) column without reading its pages. Hints and the rest as in peek.
SELECT RowVersion,
       LOWER(CONVERT(char(36), Id)) AS Id,
       CAST(CASE WHEN Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
       CAST(Headers AS nvarchar(max)) AS Headers,
       DATALENGTH(Body) AS body_bytes
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion > :after AND RowVersion <= :up_to
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
OPTION (FAST 1)

-- name: purge
-- Deletes the next rows, whatever they are.
-- The length of Headers serves as that of the row in take, hints as there. DEADLOCK_PRIORITY LOW lasts until
-- the batch ends. Where two sessions lock an index key and its row in opposite orders, it makes the purge
-- lose, so that no other session loses work to a cleanup.
SET DEADLOCK_PRIORITY LOW;
WITH batch AS (
    SELECT TOP (:count) RowVersion
    FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE RowVersion > :after AND RowVersion <= :up_to AND COALESCE(DATALENGTH(Headers), 0) >= 0
    ORDER BY RowVersion
)
DELETE FROM batch
OUTPUT deleted.RowVersion
OPTION (MAXDOP 1)

-- name: purge_expired
-- Deletes the next expired rows.
-- Index_Expires finds the expired rows, oldest first, so each batch begins where the batches before have left
-- none. It takes no range of RowVersions: as a condition, the range would let the plan go by RowVersion and
-- lock the whole backlog. GETUTCDATE() as in claim. IS NOT NULL is the condition that a filtered index has.
SET DEADLOCK_PRIORITY LOW;
WITH batch AS (
    SELECT TOP (:count) RowVersion
    FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE Expires IS NOT NULL AND Expires <= GETUTCDATE() AND COALESCE(DATALENGTH(Headers), 0) >= 0
    ORDER BY Expires
)
DELETE FROM batch
OUTPUT deleted.RowVersion
OPTION (MAXDOP 1)
