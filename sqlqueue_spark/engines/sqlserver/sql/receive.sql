-- receive.sql · SQL Server · what a receiver says to a queue table

-- name: ends
-- the lowest and the highest RowVersion that are there now
-- out: both, or NULL
-- Two probes of the index: as one query over the table, MIN and MAX together are a scan of the whole index. What is sent
-- between the probes stands above what is looked at, and no old row is left out for it. READUNCOMMITTED: both are only
-- bounds, and must not wait for anyone.
SELECT (SELECT MIN(RowVersion) FROM {queue} WITH (READUNCOMMITTED)),
       (SELECT MAX(RowVersion) FROM {queue} WITH (READUNCOMMITTED))

-- name: highest
-- the highest RowVersion that is there now
-- out: RowVersion or NULL
-- READUNCOMMITTED: it is only an upper bound, and must not wait for anyone.
SELECT MAX(RowVersion) FROM {queue} WITH (READUNCOMMITTED)

-- name: claim
-- locks the next rows in RowVersion order
-- in: after which RowVersion, up to which, how many     out: RowVersion, expired, bytes
-- READPAST steps over rows other receivers hold; UPDLOCK keeps what is read until the transaction ends.
-- Expires is read so that on a heap the row itself is locked, not only the index key. FORCESEEK: a scan with a
-- sort would lock every row of the table on the way; without an index on RowVersion it is an error instead. FAST 1 and
-- MAXDOP 1: reading ahead on a heap, and the threads of a parallel plan, would lock rows that nobody is told of.
SELECT RowVersion,
       CAST(CASE WHEN Expires <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS bit) AS expired,
       COALESCE(DATALENGTH(Headers), 0) + COALESCE(DATALENGTH(Body), 0) AS bytes
FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
WHERE RowVersion > ? AND RowVersion <= ?
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY
OPTION (FAST 1, MAXDOP 1)

-- name: look
-- the next rows in RowVersion order, locking nothing for longer than a row is read
-- in: after which RowVersion, up to which, how many     out: RowVersion, 0, bytes
-- For workers that take rows without a claim. Rows under an update lock are seen too, and stepped over when they are
-- taken; only then is judged what has expired. READPAST steps over rows that are just sent or deleted; with
-- READ_COMMITTED_SNAPSHOT on it is legal only beside READCOMMITTEDLOCK (error 650). FAST as in read.
SELECT RowVersion,
       CAST(0 AS bit) AS expired,
       COALESCE(DATALENGTH(Headers), 0) + COALESCE(DATALENGTH(Body), 0) AS bytes
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion > ? AND RowVersion <= ?
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY
OPTION (FAST 1)

-- name: read
-- reads the rows of a range
-- in: first RowVersion, last RowVersion     out: the eight columns of a message
-- Shared locks pass the driver's update locks. READPAST steps over rows others delete just now (they are not in
-- the claim); with READ_COMMITTED_SNAPSHOT on it is legal only beside READCOMMITTEDLOCK (error 650).
-- FORCESEEK: on a heap a wide range may look cheaper as a scan of the whole backlog with a sort. FAST 1: where the server
-- expects many rows it reads ahead on a heap, and then keeps all their locks until the last row is fetched, or one on the
-- whole table instead of them (docs/sqlserver-locking.md).
-- Headers are varchar or nvarchar, by the table's age. Columns the table does not have arrive as NULL.
SELECT LOWER(CONVERT(char(36), Id)) AS Id,
       CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
       CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
       CAST({Recoverable} AS bit) AS Recoverable,
       Expires,
       CAST(Headers AS nvarchar(max)) AS Headers,
       Body,
       RowVersion
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion BETWEEN ? AND ?
ORDER BY RowVersion
OPTION (FAST 1)

-- name: read_unexpired
-- reads the rows of a range that have not expired
-- in: first RowVersion, last RowVersion     out: the eight columns of a message
-- As read, hints included, for a look at a queue that claims nothing.
SELECT LOWER(CONVERT(char(36), Id)) AS Id,
       CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
       CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
       CAST({Recoverable} AS bit) AS Recoverable,
       Expires,
       CAST(Headers AS nvarchar(max)) AS Headers,
       Body,
       RowVersion
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion BETWEEN ? AND ? AND (Expires IS NULL OR Expires > SYSUTCDATETIME())
ORDER BY RowVersion
OPTION (FAST 1)

-- name: take
-- deletes the rows of a range and returns them
-- in: first RowVersion, last RowVersion, how many     out: the eight columns of a message, and whether it is expired,
-- in any order
-- READPAST steps over rows that others hold: they stay, and nobody waits. It must meet their locks while it looks: the
-- delete itself would wait. So the length of Headers (always true) makes it look at the row and not only at an index
-- key. FORCESEEK: a scan with a sort would lock every row; it may stand in a FROM clause, not beside DELETE (error
-- 10724). At most as many as were planned, for others may have come up in between. The values are declared first
-- because TOP stands before the others in the text. Columns as in read; OUTPUT may name a column of the common
-- table expression where it is a plain expression (error 4186 forbids subqueries). MAXDOP as in claim.
DECLARE @first bigint = ?, @last bigint = ?, @rows bigint = ?;
WITH batch AS (
    SELECT TOP (@rows)
           Id,
           CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
           CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
           CAST({Recoverable} AS bit) AS Recoverable,
           Expires,
           Headers,
           Body,
           RowVersion
    FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE RowVersion BETWEEN @first AND @last AND COALESCE(DATALENGTH(Headers), 0) >= 0
    ORDER BY RowVersion
)
DELETE FROM batch
OUTPUT LOWER(CONVERT(char(36), deleted.Id)) AS Id,
       deleted.CorrelationId,
       deleted.ReplyToAddress,
       deleted.Recoverable,
       deleted.Expires,
       CAST(deleted.Headers AS nvarchar(max)) AS Headers,
       deleted.Body,
       deleted.RowVersion,
       CAST(CASE WHEN deleted.Expires <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS bit) AS expired
OPTION (MAXDOP 1)

-- name: ids
-- the row ids of some rows, to prove that a claim is still the same rows
-- in: the runs as JSON [[first,last],…]     out: RowVersion, Id
-- READPAST with READCOMMITTEDLOCK is legal with and without RCSI; rows locked by ourselves are never passed.
SELECT q.RowVersion, LOWER(CONVERT(char(36), q.Id)) AS Id
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (first bigint '$[0]', last bigint '$[1]') AS run
INNER LOOP JOIN {queue} AS q WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK)
    ON q.RowVersion BETWEEN run.first AND run.last
ORDER BY q.RowVersion

-- name: lock
-- locks again what is left of a claim, waiting for rows that others hold
-- in: the runs as JSON [[first,last],…]     out: RowVersion, bytes
-- No READPAST: a row left out here and rolled back there would later be deleted unprocessed. Expires is read
-- so that on a heap the row itself is locked. OPENJSON needs compatibility level 130, and refuses the
-- ntext as which pyodbc sends a long text. MAXDOP 1: one thread locks in ascending order, as everybody who waits does.
SELECT q.RowVersion, COALESCE(DATALENGTH(q.Headers), 0) + COALESCE(DATALENGTH(q.Body), 0) AS bytes, q.Expires
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (first bigint '$[0]', last bigint '$[1]') AS run
INNER LOOP JOIN {queue} AS q WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON q.RowVersion BETWEEN run.first AND run.last
ORDER BY q.RowVersion
OPTION (MAXDOP 1)

-- name: holders
-- who holds locks on rows of a table
-- in: object id of the table, first RowVersion, last RowVersion, database     out: session, login, host, program
-- Locks are named by hashes, so the range cannot be told from them and only stands here as in the twin. Needs
-- VIEW SERVER STATE; without it the caller says that it may not look. Only locks of this database: the numbers of
-- tables' parts are the same in others, and a session named here may be ended by whoever reads its name.
SELECT DISTINCT s.session_id, s.login_name, s.host_name, s.program_name
FROM sys.dm_tran_locks AS l
JOIN {catalog}.sys.partitions AS p ON p.hobt_id = l.resource_associated_entity_id
JOIN sys.dm_exec_sessions AS s ON s.session_id = l.request_session_id
WHERE l.resource_type IN ('KEY', 'RID') AND l.request_status = 'GRANT' AND l.request_mode IN ('U', 'X')
  AND s.session_id <> @@SPID AND p.object_id = ? AND ? <= ?
  AND l.resource_database_id = DB_ID(?)

-- name: delete
-- deletes a claim that this transaction has locked
-- in: the runs as JSON [[first,last],…]     out: number of rows
-- A run holds consecutive numbers that were all claimed, so nothing else can stand between its ends. At most
-- 2,400 rows a statement: with a page each they make 4,800 locks on one index, and 5,000 may escalate to a table lock.
DELETE q
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (first bigint '$[0]', last bigint '$[1]') AS run
INNER LOOP JOIN {queue} AS q WITH (ROWLOCK, FORCESEEK) ON q.RowVersion BETWEEN run.first AND run.last
OPTION (MAXDOP 1)

-- name: delete_range
-- deletes one run of a claim that this transaction has locked
-- in: first RowVersion, last RowVersion     out: number of rows
-- As delete for the usual claim, which is one run. At most 2,400 rows a statement.
DELETE q
FROM {queue} AS q WITH (ROWLOCK, FORCESEEK)
WHERE q.RowVersion BETWEEN ? AND ?
OPTION (MAXDOP 1)

-- name: waiting
-- what waits behind a row: two index probes
-- in: after which RowVersion     out: the first RowVersion that waits, the highest, headers of the oldest, the database's
-- clock in UTC
-- The caller counts from one to the other: the number of rows at most, for those that were taken out of order are counted
-- too; an exact count would read the whole backlog. Not here: the two can be further apart than a bigint can say (error
-- 8115). Headers are not read as READUNCOMMITTED: what lies off the row may be moved meanwhile, and error 7105 ends the
-- connection, which holds a claim. Hints as in read.
SELECT TOP (1) q.RowVersion, (SELECT MAX(RowVersion) FROM {queue} WITH (READUNCOMMITTED)),
       CAST(q.Headers AS nvarchar(max)), SYSUTCDATETIME()
FROM {queue} AS q WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE q.RowVersion > ?
ORDER BY q.RowVersion
OPTION (FAST 1)
