-- receive.sql · SQL Server · what a receiver says to a queue table

-- name: highest
-- Returns the highest RowVersion that is in the queue now.
-- READUNCOMMITTED: the value is only a bound, and the statement must not wait for anyone.
SELECT MAX(RowVersion) FROM {queue} WITH (READUNCOMMITTED)

-- shared: row_bytes
COALESCE(DATALENGTH(Headers), 0) + COALESCE(DATALENGTH(Body), 0)

-- name: claim
-- Locks the next rows in RowVersion order.
-- out: RowVersion, expired, bytes, whether it may be a message in transit
-- READPAST steps over rows other receivers hold; UPDLOCK keeps what is read until the transaction ends. The
-- statement reads Expires so that on a heap it locks the row itself, not only the index key. FORCESEEK: a
-- scan with a sort would lock every row of the table on the way. Where RowVersion has no index, FORCESEEK
-- raises an error instead. FAST 1 and MAXDOP 1: reading ahead on a heap, and the threads of a parallel plan,
-- would lock rows that the statement does not return. GETUTCDATE() has the column's own type; with
-- SYSUTCDATETIME() the server would convert Expires in each row.
SELECT RowVersion,
       CAST(CASE WHEN Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
       {row_bytes} AS bytes,
       CAST(CASE WHEN CHARINDEX(N'NServiceBus.SqlServer.ForwardDestination',
           Headers COLLATE Latin1_General_BIN2) > 0 THEN 1 ELSE 0 END AS bit) AS in_transit
FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
WHERE RowVersion > :after AND RowVersion <= :up_to
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
OPTION (FAST 1, MAXDOP 1)

-- name: claim_runs
-- Locks those of some rows that are free.
-- in: RowVersions, ascending     out: as of claim, but 0 for in transit; the rows come in any order
-- For a claim that has stepped over rows of others and was rolled back: this statement seeks only the rows
-- that were got, so that it keeps nothing of the others. Hints as in claim; the rest as in lock.
SELECT q.RowVersion,
       CAST(CASE WHEN q.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
       COALESCE(DATALENGTH(q.Headers), 0) + COALESCE(DATALENGTH(q.Body), 0) AS bytes,
       CAST(0 AS bit) AS in_transit
FROM OPENJSON(CAST(:row_versions AS nvarchar(max))) WITH (RowVersion bigint '$') AS j
INNER LOOP JOIN {queue} AS q WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON q.RowVersion = j.RowVersion
OPTION (FAST 1, MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: count_range
-- Returns how many rows stand in a range, free or held.
-- READUNCOMMITTED counts rows that others hold, and waits for no lock. Where a claim has looked and got fewer
-- rows, it has stepped over some. FORCESEEK: the keys are counted, because a deleter removes the row of a
-- heap before its key.
SELECT COUNT_BIG(*)
FROM {queue} WITH (READUNCOMMITTED, FORCESEEK)
WHERE RowVersion > :after AND RowVersion <= :up_to

-- none: announce · no statement here tells whose lock a row has.

-- name: first_reader
-- Tells whether this session is the first one that reads a queue for a program. It remains so until it ends.
-- The words in front keep the lock apart from those of create_lock and stage_hold. With a timeout of 0 the
-- statement waits for nothing; a lock that is refused for another reason tells of no other reader.
DECLARE @resource nvarchar(255) = LEFT(N'reader of ' + CAST(:name AS nvarchar(max)), 255), @got int
EXEC @got = sys.sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Session',
    @LockTimeout = 0
SELECT CAST(CASE WHEN @got = -1 THEN 0 ELSE 1 END AS bit)

-- name: oldest
-- Looks which of the oldest rows are free, and keeps no lock.
-- The statement reads keys of the index, each under a shared lock that it gives back before the next one.
-- READPAST steps over rows that are deleted and not committed. It cannot tell who that is, so it says that
-- neighbours hold 0 rows, that there are 0 other streams, and that 0 neighbours look for a row. Rows under an
-- update lock count as free. With READ_COMMITTED_SNAPSHOT on, READPAST is legal only beside READCOMMITTEDLOCK
-- (error 650). MAXDOP 1: one thread reads the keys in their order, and ends early.
SELECT COALESCE(SUM(CASE WHEN s.RowVersion <= :left_to THEN 1 ELSE 0 END), 0),
       0,
       MIN(s.RowVersion),
       MAX(CASE WHEN s.nth <= :count THEN s.RowVersion END),
       COALESCE(SUM(CASE WHEN s.nth <= :count THEN 1 ELSE 0 END), 0),
       COALESCE(SUM(CASE WHEN s.RowVersion > :onward THEN 1 ELSE 0 END), 0),
       0,
       0
FROM (
    SELECT r.RowVersion, ROW_NUMBER() OVER (ORDER BY r.RowVersion) AS nth
    FROM (
        SELECT b.RowVersion
        FROM {queue} AS b WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
        WHERE b.RowVersion > :after AND b.RowVersion <= :left_to
        UNION ALL
        SELECT o.RowVersion
        FROM (
            SELECT TOP (:most) q.RowVersion
            FROM {queue} AS q WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
            WHERE q.RowVersion > :onward
            ORDER BY q.RowVersion
        ) AS o
    ) AS r
) AS s
OPTION (MAXDOP 1)

-- none: clean_indexes · the server removes the entries of deleted rows (ghosts) by itself, within seconds.

-- name: look
-- Returns the next rows in RowVersion order, and locks each row only while it is read.
-- out: as of claim, but 0 for expired
-- The statement also returns rows under an update lock. READPAST steps over rows that others are just sending
-- or deleting. READCOMMITTEDLOCK as in oldest, FAST 1 as in claim.
SELECT RowVersion,
       CAST(0 AS bit) AS expired,
       {row_bytes} AS bytes,
       CAST(CASE WHEN CHARINDEX(N'NServiceBus.SqlServer.ForwardDestination',
           Headers COLLATE Latin1_General_BIN2) > 0 THEN 1 ELSE 0 END AS bit) AS in_transit
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion > :after AND RowVersion <= :up_to
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
OPTION (FAST 1)

-- shared: message
-- The eight columns of a message. Headers are varchar or nvarchar, depending on the table's age. Columns that
-- the table does not have arrive as NULL.
LOWER(CONVERT(char(36), Id)) AS Id,
       CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
       CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
       CAST({Recoverable} AS bit) AS Recoverable,
       Expires,
       CAST(Headers AS nvarchar(max)) AS Headers,
       Body,
       RowVersion

-- name: read
-- Reads the first rows of a range.
-- The statement may keep the shared lock of each row until it ends, because it reads (max) columns. So it
-- reads at most 2,400 rows, which is too few for a lock on the table, and the client fetches them all before
-- it gives any away (windows.py). The shared locks pass the driver's update locks. READPAST steps over rows
-- that others are just deleting; these rows are not in the claim. FORCESEEK: on a heap, the server may think
-- a scan of the whole backlog with a sort cheaper than the read of a wide range. Between others may stand a
-- row that no client can read. READCOMMITTEDLOCK as in oldest, FAST 1 as in claim.
SELECT TOP (2400) {message}
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion BETWEEN :first AND :last AND {row_bytes} <= {largest_row}
ORDER BY RowVersion
OPTION (FAST 1)

-- name: read_unexpired
-- Reads the first rows of a range that have not expired.
-- It has the hints of read, and serves a look at a queue that claims nothing.
SELECT TOP (2400) {message}
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion BETWEEN :first AND :last AND (Expires IS NULL OR Expires > GETUTCDATE())
  AND {row_bytes} <= {largest_row}
ORDER BY RowVersion
OPTION (FAST 1)

-- name: read_versions
-- Reads the first rows of a range as they were committed last, and locks nothing.
-- For a database with READ_COMMITTED_SNAPSHOT: the claim has deleted its rows in a transaction that is still
-- open, and row versions show them all the same. Without hints for locks the statement takes none, so it
-- holds no session up, and no lock can escalate. It reads at most 10,000 rows, which are one batch of
-- Spark's: it is fetched whole as in read, so that the version store does not have to wait for Spark.
-- FORCESEEK and FAST 1 as in read.
SELECT TOP (10000) {message}
FROM {queue} WITH (FORCESEEK)
WHERE RowVersion BETWEEN :first AND :last AND {row_bytes} <= {largest_row}
ORDER BY RowVersion
OPTION (FAST 1)

-- name: take
-- Deletes the rows of a range and returns them.
-- READPAST must meet the locks of others while the statement looks for rows, because the delete itself would
-- wait. The length of the row makes the server look at the row and not only at an index key; a row that no
-- client can read stays. FORCESEEK as in claim; the hint may stand in a FROM clause, but not beside DELETE
-- (error 10724). Columns as in read; OUTPUT may name a column of the common table expression only where it is
-- a plain expression (error 4186 forbids subqueries). MAXDOP 1 as in claim.
WITH batch AS (
    SELECT TOP (:count)
           Id,
           CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
           CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
           CAST({Recoverable} AS bit) AS Recoverable,
           Expires, Headers, Body, RowVersion
    FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE RowVersion BETWEEN :first AND :last AND {row_bytes} <= {largest_row}
      AND (COALESCE(CHARINDEX(N'NServiceBus.SqlServer.ForwardDestination',
          Headers COLLATE Latin1_General_BIN2), 0) = 0
           OR RowVersion IN ({in_transit}))
    ORDER BY RowVersion
)
DELETE FROM batch
OUTPUT LOWER(CONVERT(char(36), deleted.Id)) AS Id,
       deleted.CorrelationId,
       deleted.ReplyToAddress,
       deleted.Recoverable,
       deleted.Expires,
       CAST(deleted.Headers AS nvarchar(max)) AS Headers,
       deleted.Body, deleted.RowVersion,
       CAST(CASE WHEN deleted.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired
OPTION (MAXDOP 1)

-- name: ids
-- Returns the row ids of some rows, to prove that a claim still has the same rows.
-- READPAST with READCOMMITTEDLOCK is legal with READ_COMMITTED_SNAPSHOT on and off. It never steps over rows
-- that we have locked ourselves. The rest as in lock.
SELECT q.RowVersion, LOWER(CONVERT(char(36), q.Id)) AS Id
FROM OPENJSON(CAST(:row_versions AS nvarchar(max))) WITH (RowVersion bigint '$') AS j
INNER LOOP JOIN {queue} AS q WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK) ON q.RowVersion = j.RowVersion
OPTION (FAST 1, MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: headers_of
-- Reads the headers of some rows.
-- Hints and the rest as in ids.
SELECT q.RowVersion, LOWER(CONVERT(char(36), q.Id)) AS Id, CAST(q.Headers AS nvarchar(max))
FROM OPENJSON(CAST(:row_versions AS nvarchar(max))) WITH (RowVersion bigint '$') AS j
INNER LOOP JOIN {queue} AS q WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK) ON q.RowVersion = j.RowVersion
OPTION (FAST 1, MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: lock_in_transit
-- Locks those of some rows that are free, and reads them whole.
-- READPAST steps over rows that others hold. The rest as in lock. Columns as in read.
SELECT q.RowVersion,
       LOWER(CONVERT(char(36), q.Id)) AS Id,
       CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
       CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
       q.Expires,
       CAST(q.Headers AS nvarchar(max)) AS Headers,
       q.Body
FROM OPENJSON(CAST(:row_versions AS nvarchar(max))) WITH (RowVersion bigint '$') AS j
INNER LOOP JOIN {queue} AS q WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON q.RowVersion = j.RowVersion
OPTION (FAST 1, MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: lock
-- Locks again what is left of a claim, and waits for rows that others hold.
-- No READPAST, as there no SKIP LOCKED. The statement reads Expires so that on a heap it locks the row
-- itself. OPENJSON needs compatibility level 130. CAST: pyodbc sends a long text as ntext, which OPENJSON
-- refuses. Each row is sought by its own number, which has the column's type. The server takes the JSON for
-- 50 rows, and of a range between two of its columns it believes that a part of the whole table lies in it;
-- the plan would be one for millions of rows. There is no ORDER BY: it would be a sort, behind the locks,
-- with memory for as many rows as were believed; the client sorts what it gets. MAXDOP 1 and FAST 1: one
-- thread locks the rows in the order of the JSON, as all statements that wait for rows do, and reads none
-- ahead. MAX_GRANT_PERCENT as in stage_count, should the server sort for the join after all.
SELECT q.RowVersion, COALESCE(DATALENGTH(q.Headers), 0) + COALESCE(DATALENGTH(q.Body), 0) AS bytes, q.Expires
FROM OPENJSON(CAST(:row_versions AS nvarchar(max))) WITH (RowVersion bigint '$') AS j
INNER LOOP JOIN {queue} AS q WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON q.RowVersion = j.RowVersion
OPTION (FAST 1, MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: holders
-- Returns who holds locks on rows of a table.
-- The server names locks by hashes, so the statement cannot tell on which rows they lie. It needs VIEW SERVER
-- STATE; without that right the caller says that it may not look. The statement considers only locks of this
-- database. Parts of tables in other databases have the same numbers, and a person who reads a session's name
-- here may end that session.
SELECT DISTINCT s.session_id, s.login_name, s.host_name, s.program_name
FROM sys.dm_tran_locks AS l
JOIN {catalog}.sys.partitions AS p ON p.hobt_id = l.resource_associated_entity_id
JOIN sys.dm_exec_sessions AS s ON s.session_id = l.request_session_id
WHERE l.resource_type IN ('KEY', 'RID') AND l.request_status = 'GRANT' AND l.request_mode IN ('U', 'X')
  AND s.session_id <> @@SPID AND p.object_id = :object_id
  AND l.resource_database_id = DB_ID(:database)

-- name: delete
-- Deletes a claim that this transaction has locked.
-- At most 2,400 rows a statement: where each row has a page to itself, they take 4,800 locks on one index,
-- and 5,000 may escalate to a table lock. Each row is sought by its number as in lock. MAX_GRANT_PERCENT: the
-- server may sort what it deletes by the key of another index.
DELETE q
FROM OPENJSON(CAST(:row_versions AS nvarchar(max))) WITH (RowVersion bigint '$') AS j
INNER LOOP JOIN {queue} AS q WITH (ROWLOCK, FORCESEEK) ON q.RowVersion = j.RowVersion
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: delete_range
-- Deletes one run of a claim that this transaction has locked.
-- At most 2,400 rows a statement.
DELETE q
FROM {queue} AS q WITH (ROWLOCK, FORCESEEK)
WHERE q.RowVersion BETWEEN :first AND :last
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: waiting
-- Returns what waits behind a row, by two probes of the index.
-- Headers are not read under READUNCOMMITTED: a value that lies off its row may be moved meanwhile, and error
-- 7105 ends the connection, which holds a claim. Headers of more than a million bytes stay unread. Hints as
-- in read.
SELECT TOP (1) q.RowVersion, (SELECT MAX(RowVersion) FROM {queue} WITH (READUNCOMMITTED)),
       CASE WHEN DATALENGTH(q.Headers) <= 1000000 THEN CAST(q.Headers AS nvarchar(max)) END, SYSUTCDATETIME()
FROM {queue} AS q WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE q.RowVersion > :after
ORDER BY q.RowVersion
OPTION (FAST 1)
