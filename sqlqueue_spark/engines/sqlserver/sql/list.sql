-- list.sql · SQL Server · which tables of a database belong to queues, and how much is in them

-- name: tables
-- Returns the columns of every table that may be a queue, an outbox, a delayed table or a stage.
-- in: schema, or '' for all of them     out: schema, table, object id, column, rows by the catalogue
-- The client recognises a table by all its columns. One that has neither headers nor operations is none of these. The catalogue
-- counts the rows of a table as they come and go, so that nobody has to read them.
SELECT s.name, t.name, CAST(t.object_id AS bigint), c.name, COALESCE(p.counted, 0)
FROM sys.tables AS t
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
JOIN sys.columns AS c ON c.object_id = t.object_id
CROSS APPLY (
    SELECT SUM(r.rows) AS counted FROM sys.partitions AS r WHERE r.object_id = t.object_id AND r.index_id IN (0, 1)
) AS p
WHERE (CAST(:schema AS nvarchar(128)) = N'' OR s.name = CAST(:schema AS nvarchar(128)))
  AND EXISTS (
      SELECT 1 FROM sys.columns AS k WHERE k.object_id = t.object_id AND k.name IN (N'Headers', N'Operations')
  )
ORDER BY s.name, t.name, c.column_id

-- name: count_rows
-- Nothing to do: the catalogue counts.

-- name: first_due
-- Returns which row of a delayed table is due first.
-- out: its headers, when it is due in UTC, the database's clock in UTC
-- The index on Due finds it. READPAST steps over rows that others are just adding or moving; with READ_COMMITTED_SNAPSHOT on,
-- it is legal only beside READCOMMITTEDLOCK (error 650). FAST 1 as in read.
SELECT TOP (1) CAST(d.Headers AS nvarchar(max)), d.Due, SYSUTCDATETIME()
FROM {delayed} AS d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
ORDER BY d.Due
OPTION (FAST 1)
