-- inspect.sql · SQL Server · how a queue table is set up, and what puts right what is wrong with it

-- name: indexes
-- Returns the key columns of a table's indexes.
-- A heap is one row without a name. Included columns have no key ordinal. The statement leaves out an index
-- that is disabled or only hypothetical, because no query can use it.
SELECT i.name, c.name, i.is_unique, LOWER(i.type_desc), i.filter_definition
FROM {catalog}.sys.indexes AS i
LEFT JOIN {catalog}.sys.index_columns AS k
    ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.key_ordinal > 0
LEFT JOIN {catalog}.sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.object_id = :object_id AND i.type IN (0, 1, 2) AND i.is_disabled = 0 AND i.is_hypothetical = 0
ORDER BY i.index_id, k.key_ordinal

-- name: index_names
-- Returns the names that a new index cannot have.
SELECT i.name FROM {catalog}.sys.indexes AS i WHERE i.object_id = :object_id AND i.name IS NOT NULL

-- name: space
-- Returns how much of a heap is dead.
-- out: 0 for the dead rows and for the seconds, which are unknown
-- There is no row for a table with a clustered index, because it gives its pages back. Only in-row pages
-- count (type 1): large bodies lie elsewhere, and every row lies on one of these. The catalogue tells as
-- much as sys.dm_db_partition_stats, which needs VIEW DATABASE STATE.
SELECT SUM(a.used_pages), SUM(p.rows), CAST(0 AS bigint), CAST(0 AS bigint)
FROM {catalog}.sys.partitions AS p
JOIN {catalog}.sys.allocation_units AS a ON a.container_id = p.hobt_id AND a.type = 1
WHERE p.object_id = :object_id AND p.index_id = 0
GROUP BY p.object_id

-- name: numbers
-- Returns what numbers the rows of a table.
-- The identity belongs to the column, so the statement returns the table's name for it.
SELECT s.name, t.name, CAST(c.last_value AS bigint), CAST(9223372036854775807 AS bigint)
FROM {catalog}.sys.identity_columns AS c
JOIN {catalog}.sys.tables AS t ON t.object_id = c.object_id
JOIN {catalog}.sys.schemas AS s ON s.schema_id = t.schema_id
WHERE c.object_id = :object_id AND c.name = 'RowVersion'

-- name: settings
-- Returns the settings of a table and its database that matter to a queue.
-- Code page 65001 is UTF-8. COLLATE: the catalogue's columns have collations of their own.
SELECT v.name, v.value
FROM {catalog}.sys.tables AS t
LEFT JOIN sys.databases AS d ON d.name = :database
LEFT JOIN {catalog}.sys.columns AS c ON c.object_id = t.object_id AND c.name = N'Headers'
CROSS APPLY (
    VALUES (N'lock escalation', t.lock_escalation_desc COLLATE DATABASE_DEFAULT),
           (N'read committed snapshot', CASE d.is_read_committed_snapshot_on WHEN 1 THEN N'on' WHEN 0
               THEN N'off' END),
           (N'snapshot isolation', LOWER(d.snapshot_isolation_state_desc) COLLATE DATABASE_DEFAULT),
           (N'delayed durability', LOWER(d.delayed_durability_desc) COLLATE DATABASE_DEFAULT),
           (N'Headers', CASE TYPE_NAME(c.system_type_id)
               WHEN N'nvarchar' THEN N'nvarchar'
               WHEN N'varchar'
                   THEN CONCAT(N'varchar, code page ',
                       CAST(COLLATIONPROPERTY(c.collation_name, 'CodePage') AS int))
           END)
) AS v (name, value)
WHERE t.object_id = :object_id AND v.value IS NOT NULL

-- none: stopping_row · a NULL body reads as an empty one here.

-- name: open_transactions
-- Returns the oldest transactions of this database that have been open for long.
-- A login without VIEW SERVER STATE sees only its own session, and no error. The view does not tell when a
-- transaction began, but when the session last sent something: the transaction is at least as old.
-- last_request_start_time is in the server's own time zone. It may be in 1900, so no seconds are counted from
-- it (error 535).
SELECT TOP (10)
       N'its locks stay, the log cannot be truncated, and old versions of rows are kept',
       CAST(s.session_id AS int),
       s.login_name,
       s.host_name,
       s.program_name,
       DATEADD(minute, DATEDIFF(minute, GETDATE(), GETUTCDATE()), s.last_request_start_time),
       SYSUTCDATETIME()
FROM sys.dm_exec_sessions AS s
WHERE s.database_id = DB_ID() AND s.session_id <> @@SPID AND s.is_user_process = 1
    AND s.open_transaction_count > 0
  AND s.last_request_start_time <= DATEADD(second, -CAST(:seconds AS int), GETDATE())
ORDER BY s.last_request_start_time

-- none: unidentified · a publication takes only tables that have a primary key.
-- none: remedy_autovacuum · the server cleans up by itself.

-- name: remedy_compatibility
-- A remedy for people: lets the database understand OPENJSON.
ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 130;

-- name: remedy_durability
-- A remedy for people: makes the server answer a commit only when it is on the disk, as by default.
ALTER DATABASE {catalog} SET DELAYED_DURABILITY = DISABLED;

-- none: remedy_fsync · the server always writes the log through to the disk.

-- name: remedy_headers
-- A remedy for people: makes headers keep every letter.
-- The server writes every row anew, and every session waits meanwhile. It is quick with a short queue.
ALTER TABLE {queue} ALTER COLUMN Headers nvarchar(max) NOT NULL;

-- name: remedy_index_expires
-- A remedy for people: creates the index that finds expired rows.
CREATE NONCLUSTERED INDEX {index} ON {queue} (Expires) INCLUDE (Id, RowVersion);

-- name: remedy_index_row_version
-- A remedy for people: creates the index that receiving goes by.
-- The index is nonclustered, so people can add it whether or not another index clusters the table. Senders
-- wait while the server builds it.
CREATE NONCLUSTERED INDEX {index} ON {queue} (RowVersion);

-- none: remedy_key · as in unidentified.

-- name: remedy_lock_escalation
-- A remedy for people: sets the default, with which large statements cost little memory.
ALTER TABLE {queue} SET (LOCK_ESCALATION = TABLE);

-- none: remedy_numbers · the numbers of a bigint identity do not end.

-- name: remedy_space
-- A remedy for people: gives the empty pages of a heap back.
-- All sessions wait while it runs. With WITH (ONLINE = ON), where the edition has it, they hardly wait.
ALTER TABLE {queue} REBUILD;

-- none: remedy_stopping_row · as in stopping_row.

-- name: remedy_transaction
-- A remedy for people: ends a session, and rolls its transaction back.
KILL :session;

-- none: remedy_write_ahead_log · what is committed is in the log.
