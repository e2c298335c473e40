-- stage.sql · SQL Server · the stage of an atomic pipeline

-- name: stage_create
-- Creates the table in which an atomic pipeline puts what it sends, until the batch is settled. The mark
-- stands in Headers. Latin1_General_BIN2 tells every two names apart. There is no primary key, as queues and
-- tables of delayed messages have none here: a publication names each of its tables, so that it never has
-- this one.
CREATE TABLE {stage} (
    Task varchar(36) COLLATE Latin1_General_BIN2 NOT NULL,
    Destination nvarchar(776) COLLATE Latin1_General_BIN2 NOT NULL,
    Id uniqueidentifier NULL,
    CorrelationId nvarchar(255) NULL,
    ReplyToAddress nvarchar(255) NULL,
    Recoverable bit NULL,
    Expires datetime NULL,
    Headers nvarchar(max) NOT NULL,
    Body varbinary(max) NULL,
    RowVersion bigint IDENTITY(1,1) NOT NULL
)

-- name: stage_storage
-- Stores the rows of a stage in their order, so that a chunk is a range.
CREATE CLUSTERED INDEX Index_RowVersion ON {stage} (RowVersion)

-- name: stage_index
-- Creates the index that finds the mark of a stage without a scan; it holds no other row.
CREATE UNIQUE NONCLUSTERED INDEX Index_Mark ON {stage} (Task) WHERE Task = ''

-- name: stage_hold
-- Takes a stage for a source, for as long as the session lives.
-- It waits for LOCK_TIMEOUT. THROW as in create_lock; the words in front keep the two names apart.
DECLARE @resource nvarchar(255) = LEFT(N'source of ' + CAST(:name AS nvarchar(max)), 255), @got int
EXEC @got = sys.sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Session'
IF @got = -1
BEGIN;
    THROW 51001, N'another session holds the stage', 1;
END
IF @got < -1
BEGIN;
    THROW 51000, N'the lock of the stage was refused', 1;
END

-- name: stage_held
-- Returns which other sessions hold a stage.
-- out: session (NULL: only with VIEW SERVER STATE could we know who it is)
-- APPLOCK_TEST says 0 where the lock could not be had at once. The lock's name is that of stage_hold.
SELECT CAST(NULL AS int)
WHERE
    APPLOCK_TEST(N'public', LEFT(N'source of ' + CAST(:name AS nvarchar(max)), 255), N'Exclusive', N'Session')
        = 0

-- name: stage_mark
-- Returns the mark of a stage, and locks it.
-- INDEX: a plan that was made while the stage was empty scans the table. On a full stage it would lock every
-- row, and wait for rows that are just being staged. RECOMPILE: where the database makes a parameter of every
-- literal, the index would not serve.
SELECT Headers
FROM {stage} WITH (UPDLOCK, ROWLOCK, INDEX (Index_Mark))
WHERE Task = ''
OPTION (RECOMPILE)

-- name: stage_open
-- Gives a stage its first mark.
INSERT INTO {stage} (Task, Destination, Headers) VALUES ('', N'', :mark)

-- name: stage_seal
-- Replaces the mark of a stage, which says whose it is and which rows count.
-- INDEX as in stage_mark.
UPDATE s
SET Headers = :mark
FROM {stage} AS s WITH (ROWLOCK, INDEX (Index_Mark))
WHERE s.Task = ''

-- name: stage_last
-- Returns the number of the last row on a stage.
-- The number is read from the end of the clustered index. READUNCOMMITTED: a task of a dead attempt may still
-- be staging. The statement must not wait for that task, and what the task adds later does not count either.
SELECT MAX(RowVersion) FROM {stage} WITH (READUNCOMMITTED)

-- name: stage_insert
-- Puts messages on the stage.
-- in: the task; the messages as JSON [[n, id, time of expiry, headers, body, correlation id, reply-to,
--     destination],…]
-- It reads the JSON as insert does. Recoverable is 1, because every queue that has this column wants 1. The
-- parameter has the type of its column.
INSERT INTO {stage}
    (Task, Destination, Id, CorrelationId, ReplyToAddress, Recoverable, Expires, Headers, Body)
SELECT CAST(:task AS varchar(36)), j.Destination, j.Id, j.CorrelationId, j.ReplyToAddress, CAST(1 AS bit),
    j.Expires, j.Headers, j.Body
FROM OPENJSON(CAST(:messages AS nvarchar(max))) WITH (
    n int '$[0]',
    Id uniqueidentifier '$[1]',
    Expires datetime2(3) '$[2]',
    Headers nvarchar(max) '$[3]',
    Body varbinary(max) '$[4]',
    CorrelationId nvarchar(255) '$[5]',
    ReplyToAddress nvarchar(255) '$[6]',
    Destination nvarchar(776) '$[7]'
) AS j
ORDER BY j.n
OPTION (MAX_GRANT_PERCENT = 10)

-- shared: moved
-- The staged rows of a destination up to one of them, in the order of the stage.
FROM {stage}
WHERE Destination = CAST(:destination AS nvarchar(776))
  AND {of_tasks}
  AND RowVersion > :after AND RowVersion <= :up_to
ORDER BY RowVersion
OPTION (MAX_GRANT_PERCENT = 10)

-- shared: of_tasks
-- The rows of some tasks, whose names are JSON. The names get type and collation of the column, once for each
-- task. Otherwise the server would convert the column in each row of the stage.
Task IN (
      SELECT t.Task COLLATE Latin1_General_BIN2
      FROM OPENJSON(CAST(:tasks AS nvarchar(max))) WITH (Task varchar(36) '$') AS t
  )

-- name: stage_count
-- Returns how many messages tasks have on a stage for each destination.
-- MAX_GRANT_PERCENT, here and elsewhere: a sort or a hash for which the server expects wide rows may ask for
-- a quarter of the memory for queries, and then waits for it and keeps it from others.
-- https://learn.microsoft.com/sql/t-sql/queries/hints-transact-sql-query#max_grant_percent--numeric_value
SELECT Task, Destination, COUNT_BIG(*)
FROM {stage}
WHERE {of_tasks}
  AND RowVersion > :after
GROUP BY Task, Destination
OPTION (MAX_GRANT_PERCENT = 10)

-- name: stage_next
-- Returns how far the next rows of a destination reach on a stage.
SELECT MAX(RowVersion)
FROM (
    SELECT RowVersion
    FROM {stage}
    WHERE Destination = CAST(:destination AS nvarchar(776))
      AND {of_tasks}
      AND RowVersion > :after
    ORDER BY RowVersion
    OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
) AS n
OPTION (MAX_GRANT_PERCENT = 10)

-- name: stage_move
-- Sends staged messages to their destination, in the order of the stage.
-- At most 2,400 rows a statement, as in delete. ORDER BY makes the identity follow the stage.
INSERT INTO {queue} ({columns})
SELECT {values}
{moved}

-- name: stage_rows
-- Returns staged messages of a destination, which go to an error queue instead.
SELECT CAST(Id AS nvarchar(36)), Headers, Body
{moved}

-- name: stage_try
-- Sends one staged message to its destination, for the caller to roll back.
-- Any message will do, so there is no order, and nothing to sort.
INSERT INTO {queue} ({columns})
SELECT TOP (1) {values}
FROM {stage}
WHERE Destination = CAST(:destination AS nvarchar(776))
  AND {of_tasks}

-- name: stage_clear
-- Empties a stage. TRUNCATE takes no lock for each row. It needs ALTER on the table.
TRUNCATE TABLE {stage}
