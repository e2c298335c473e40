-- list.sql · SQL Server · which tables of a database belong to queues, and how much is in them

-- name: tables
-- Returns the columns of every table that may be a queue, an outbox, a delayed table or a stage.
-- in: schema, or '' for all of them
-- out: schema, table, object id, column, rows by the catalogue, the owner if that is a stranger (else '')
-- The client recognises a table by all its columns. One that has neither headers nor operations is none of
-- these. The catalogue counts the rows of a table as they come and go, so the statement does not read them.
SELECT s.name, t.name, CAST(t.object_id AS bigint), c.name, COALESCE(p.counted, 0),
    CASE WHEN o.id IN ({trusted}) THEN N'' ELSE COALESCE(USER_NAME(o.id), N'?') END
FROM sys.tables AS t
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
JOIN sys.columns AS c ON c.object_id = t.object_id
CROSS APPLY (SELECT COALESCE(t.principal_id, s.principal_id) AS id) AS o
CROSS APPLY (
    SELECT SUM(r.rows) AS counted FROM sys.partitions AS r WHERE r.object_id = t.object_id
        AND r.index_id IN (0, 1)
) AS p
WHERE (CAST(:schema AS nvarchar(128)) = N'' OR s.name = CAST(:schema AS nvarchar(128)))
  AND EXISTS (
      SELECT 1 FROM sys.columns AS k WHERE k.object_id = t.object_id AND k.name IN (N'Headers', N'Operations')
  )
ORDER BY s.name, t.name, c.column_id

-- name: count_rows
-- Nothing to do: the catalogue counts.

-- shared: trusted
1, DATABASE_PRINCIPAL_ID(), DATABASE_PRINCIPAL_ID(N'db_owner')
