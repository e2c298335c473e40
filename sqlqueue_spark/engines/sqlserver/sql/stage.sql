-- stage.sql · SQL Server · the stage of an atomic pipeline

-- name: stage_create
-- creates the table in which an atomic pipeline puts what it sends, until the batch is settled
-- The caller has looked, under the lock, that it is not there. One row, the mark, has no task: its headers say which
-- claim the stage belongs to and whose rows count.
-- Latin1_General_BIN2 tells every two names apart.
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
-- stores the rows of a stage in their order, so that a chunk is a range
CREATE CLUSTERED INDEX Index_RowVersion ON {stage} (RowVersion)

-- name: stage_index
-- finds the mark of a stage without a scan; the other rows are not in it
CREATE UNIQUE NONCLUSTERED INDEX Index_Mark ON {stage} (Task) WHERE Task = ''

-- name: stage_hold
-- takes a stage for a source, for as long as the session lives
-- in: the stage's full name, quoted
-- Of the session, not of the transaction: a sink wants to know that a source lives while it holds no batch. It waits for
-- LOCK_TIMEOUT, as the session of a process that has just died may not have ended yet. A lock that is refused is a return
-- code, not an error: 1222 is what the server says of other locks. The word in front keeps it apart from create_lock.
DECLARE @resource nvarchar(255) = LEFT(N'source of ' + CAST(? AS nvarchar(max)), 255), @got int
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
-- which other sessions hold a stage
-- in: the stage's full name, quoted     out: session (NULL: who it is takes VIEW SERVER STATE to know)
-- APPLOCK_TEST says 0 where the lock could not be had at once. The name is that of stage_hold.
SELECT CAST(NULL AS int)
WHERE APPLOCK_TEST(N'public', LEFT(N'source of ' + CAST(? AS nvarchar(max)), 255), N'Exclusive', N'Session') = 0

-- name: stage_mark
-- the mark of a stage
-- out: the mark, as JSON; no row when nobody has opened the stage
-- UPDLOCK, so that two sinks of one batch add to it one after the other. INDEX: a plan that was made when the stage was
-- empty scans it, and would then lock every row of a full one, waiting for those that are just being staged. RECOMPILE:
-- where the database makes a parameter of every literal, the index would not serve.
SELECT Headers
FROM {stage} WITH (UPDLOCK, ROWLOCK, INDEX (Index_Mark))
WHERE Task = ''
OPTION (RECOMPILE)

-- name: stage_open
-- gives a stage its first mark
-- in: the mark, as JSON
INSERT INTO {stage} (Task, Destination, Headers) VALUES ('', N'', ?)

-- name: stage_seal
-- replaces the mark of a stage: whose it is, and which rows count
-- in: the mark, as JSON     out: number of rows
-- INDEX as in stage_mark.
UPDATE s
SET Headers = ?
FROM {stage} AS s WITH (ROWLOCK, INDEX (Index_Mark))
WHERE s.Task = ''

-- name: stage_last
-- the number of the last row on a stage
-- out: the last RowVersion or NULL
-- From the end of the clustered index. READUNCOMMITTED: a task that a dead attempt has left may just be staging, and is not to
-- be waited for; what it adds later never counts either.
SELECT MAX(RowVersion) FROM {stage} WITH (READUNCOMMITTED)

-- name: stage_insert
-- puts messages on the stage
-- in: the task; the messages as JSON [[n, id, time of expiry, headers, body, correlation id, reply-to, destination],…]
-- out: number of rows
-- As insert; every queue that has the column Recoverable wants it to be 1.
INSERT INTO {stage} (Task, Destination, Id, CorrelationId, ReplyToAddress, Recoverable, Expires, Headers, Body)
SELECT ?, j.Destination, j.Id, j.CorrelationId, j.ReplyToAddress, CAST(1 AS bit), j.Expires, j.Headers, j.Body
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (
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

-- name: stage_count
-- how many messages tasks have on a stage
-- in: tasks as JSON, after which RowVersion     out: task, messages
SELECT Task, COUNT_BIG(*)
FROM {stage}
WHERE Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max)))) AND RowVersion > ?
GROUP BY Task

-- name: stage_next
-- how far the next rows of a destination reach on a stage
-- in: destination, tasks as JSON, after which RowVersion, how many     out: the last RowVersion or NULL
SELECT MAX(RowVersion)
FROM (
    SELECT RowVersion
    FROM {stage}
    WHERE Destination = ?
      AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max))))
      AND RowVersion > ?
    ORDER BY RowVersion
    OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY
) AS n

-- name: stage_move
-- sends staged messages to their destination, in the order of the stage
-- in: destination, tasks as JSON, after which RowVersion, up to which     out: number of rows
-- Only rows of tasks that Spark has accepted: a twin, or a task of an attempt that failed, may have left others.
-- {columns} are those of the destination. At most 2,400 rows: with a page each they make 4,800 locks, and 5,000 may escalate to a
-- table lock.
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM {stage}
WHERE Destination = ?
  AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max))))
  AND RowVersion > ? AND RowVersion <= ?
ORDER BY RowVersion

-- name: stage_try
-- sends one staged message to its destination, for the caller to roll back
-- in: destination, tasks as JSON     out: number of rows
-- What a destination refuses (a missing right, a column that must be filled, a trigger) is so found before the batch is done.
INSERT INTO {queue} ({columns})
SELECT TOP (1) {columns}
FROM {stage}
WHERE Destination = ?
  AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max))))
ORDER BY RowVersion

-- name: stage_clear
-- empties a stage
-- TRUNCATE takes no lock a row. It waits for everybody who has the table open, be it for reading: it is run where nothing
-- depends on it and nothing is waited for (lock_timeout). It needs ALTER on the table.
TRUNCATE TABLE {stage}
