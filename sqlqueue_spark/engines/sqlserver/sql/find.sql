-- find.sql · SQL Server · how a table is found

-- name: database
-- Returns the database that we are connected to, and how the server spells the name of one.
-- in: a name in any spelling, or ''
-- out: its name; whether the database of that name, or this one without a name, is read-only; the name as the
--     server spells it, NULL where we may not know of it
-- On a readable secondary replica, every statement runs under SNAPSHOT and the server ignores its hints: a
-- claim would lock nothing there. The server's collation decides whether two spellings are one name.
SELECT DB_NAME(),
       CAST(CASE WHEN CONVERT(nvarchar(20), DATABASEPROPERTYEX(
           COALESCE(DB_NAME(DB_ID(CAST(:catalog AS nvarchar(128)))), DB_NAME()), 'Updateability'
       )) = 'READ_ONLY' THEN 1 ELSE 0 END AS bit),
       DB_NAME(DB_ID(CAST(:catalog AS nvarchar(128))))

-- name: database_identity
-- Returns which database we are connected to, by an identity that its copies on other servers share.
SELECT CONVERT(varchar(36), service_broker_guid) FROM sys.databases WHERE database_id = DB_ID()

-- name: identity
-- Returns which table a name means, by an identity that lasts.
-- The object id and the creation date survive TRUNCATE and index rebuilds, but not a DROP.
SELECT s.name, t.name, CAST(t.object_id AS bigint), CONVERT(varchar(33), t.create_date, 126)
FROM {catalog}.sys.tables AS t
JOIN {catalog}.sys.schemas AS s ON s.schema_id = t.schema_id
WHERE s.name = :schema AND t.name = :name

-- name: namesakes
-- Returns what people may mean by a name that is no queue table: what has it in any schema, in any case.
SELECT TOP (20) s.name, o.name, CASE o.type WHEN 'U' THEN 'table' WHEN 'V' THEN 'view'
    WHEN 'SN' THEN 'synonym' END
FROM {catalog}.sys.objects AS o
JOIN {catalog}.sys.schemas AS s ON s.schema_id = o.schema_id
WHERE LOWER(o.name) = LOWER(CAST(:name AS nvarchar(128))) AND o.type IN ('U', 'V', 'SN')
ORDER BY s.name, o.name

-- name: columns
-- Returns the columns of a table.
SELECT c.name, CONCAT(y.name, CASE WHEN c.max_length = -1 THEN '(max)' END), c.is_nullable, c.is_computed,
    CAST(CASE WHEN c.is_identity = 1 OR c.default_object_id <> 0 THEN 1 ELSE 0 END AS bit)
FROM {catalog}.sys.columns AS c
JOIN {catalog}.sys.tables AS t ON t.object_id = c.object_id
JOIN {catalog}.sys.schemas AS s ON s.schema_id = t.schema_id
JOIN {catalog}.sys.types AS y ON y.user_type_id = c.user_type_id
WHERE s.name = :schema AND t.name = :name
ORDER BY c.column_id

-- name: storage
-- Returns how rows of a table are kept.
-- The setting READ_COMMITTED_SNAPSHOT is that of the table's own database. A login that may not see it is
-- taken for one without it.
SELECT CAST(COALESCE((SELECT d.is_read_committed_snapshot_on FROM sys.databases AS d
    WHERE d.name = :database), 0) AS bit),
       CAST(CASE WHEN EXISTS (
           SELECT 1 FROM {catalog}.sys.indexes AS i WHERE i.object_id = :object_id AND i.type = 0
       ) THEN 1 ELSE 0 END AS bit)
