-- list.sql · SQL Server · which tables of a database belong to queues, and how much is in them

-- name: tables
-- Returns the columns of every table that may be a queue, an outbox, a delayed table or a stage.
-- The catalogue counts the rows of a table as they come and go, so the statement does not read them.
SELECT s.name, t.name, CAST(t.object_id AS bigint), c.name, COALESCE(p.counted, 0),
    CASE WHEN o.id IN (1, DATABASE_PRINCIPAL_ID(), DATABASE_PRINCIPAL_ID(N'db_owner')) THEN N''
        ELSE COALESCE(USER_NAME(o.id), N'?') END
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

-- none: count_rows · the catalogue counts.
-- none: code_lock · with the right to insert alone there is no lock to take beforehand. So foreign_code is
--     asked once more behind an insert, and before each statement that receives. The locks of the insert, or
--     of the claim, keep new triggers out.
-- none: look_lock · likewise.
-- none: foreign_table · SQL Server keeps the plan of foreign_code, which is asked at once.

-- name: foreign_code
-- Returns what code of others would run as this user in a table that no option names.
-- in: also the database, or '' for the present one
-- Trusted are this user, the owners of these tables, dbo and the role db_owner. In another database of the
-- server, dbo is trusted where one login owns both databases. What a look calls (a security policy, a
-- computed column) can change nothing. Nor can what a default, a check or a stored computed column calls, but
-- it reads as this login, and a value that it cannot convert (error 245) ends the whole transaction. So the
-- table of another owner has none. The text runs in the table's own database, because OBJECTPROPERTY
-- knows only the present one. With the right to insert or to delete alone the catalogue does not show
-- triggers, but the property does. A foreign key of another table may delete rows there, whose triggers run.
-- COLLATE: on Azure SQL the catalogue has a collation of its own, and could not be compared with the JSON's.
DECLARE @run nvarchar(300) = QUOTENAME(COALESCE(NULLIF(:catalog, N''), DB_NAME())) + N'.sys.sp_executesql',
        @home sysname = DB_NAME(),
        @schema sysname = :schema,
        @name sysname = :name,
        @event nvarchar(6) = CHOOSE(:event / 4, N'Insert', N'Delete', NULL, N'Update'),
        @trusted nvarchar(max) = :trusted,
        @columns nvarchar(max) = :columns;
EXEC @run N'
WITH owned AS (
    SELECT t.object_id, t.is_external, OBJECTPROPERTY(t.object_id, ''OwnerId'') AS owner_id
    FROM sys.tables AS t
    JOIN sys.schemas AS s ON s.schema_id = t.schema_id
    WHERE s.name = @schema AND t.name = @name AND @event IS NOT NULL
), found AS (
    SELECT o.object_id, o.is_external, COALESCE(USER_NAME(o.owner_id), ''?'') AS owner, CASE
        WHEN DB_NAME() = @home AND (o.owner_id IN (
            1, DATABASE_PRINCIPAL_ID(), DATABASE_PRINCIPAL_ID(N''db_owner'')
        ) OR o.owner_id IN (
            SELECT OBJECTPROPERTY(CAST(j.value AS int), ''OwnerId'') FROM OPENJSON(@trusted) AS j
        )) THEN 1
        WHEN DB_NAME() <> @home AND o.owner_id = 1 AND EXISTS (
            SELECT 1
            FROM sys.databases AS a
            JOIN sys.databases AS b ON b.owner_sid = a.owner_sid
            WHERE a.name = @home AND b.name = DB_NAME()
        ) THEN 1
        ELSE 0 END AS own
    FROM owned AS o
), typed AS (
    SELECT c.name, CONCAT(y.name, CASE WHEN c.max_length = -1 THEN ''(max)'' END) AS type, y.is_user_defined
    FROM found AS f
    JOIN sys.columns AS c ON c.object_id = f.object_id
    JOIN sys.types AS y ON y.user_type_id = c.user_type_id
), wanted AS (
    SELECT LEFT(j.value, CHARINDEX('' '', j.value) - 1) AS name,
           SUBSTRING(j.value, CHARINDEX('' '', j.value) + 1, 128) AS type
    FROM OPENJSON(@columns) AS j
)
SELECT ''stranger'', '''', f.owner FROM found AS f WHERE f.own = 0
UNION ALL
SELECT ''kind'', '''', f.owner FROM found AS f WHERE f.is_external = 1
UNION ALL
SELECT DISTINCT ''column'', w.name COLLATE CATALOG_DEFAULT, f.owner
FROM found AS f
CROSS JOIN wanted AS w
WHERE NOT EXISTS (
    SELECT 1 FROM typed AS c JOIN wanted AS x
    ON x.name = c.name COLLATE CATALOG_DEFAULT AND x.type = c.type COLLATE CATALOG_DEFAULT
    WHERE w.name = c.name COLLATE CATALOG_DEFAULT
)
UNION ALL
SELECT ''type'', c.name, f.owner
FROM found AS f
CROSS JOIN typed AS c
WHERE c.is_user_defined = 1 AND (@event = ''Insert'' OR f.own = 0)
UNION ALL
SELECT ''trigger'', COALESCE((
    SELECT TOP (1) g.name
    FROM sys.triggers AS g
    WHERE g.parent_id = f.object_id
      AND OBJECTPROPERTY(g.object_id, CONCAT(''ExecIs'', @event, ''Trigger'')) = 1
    ORDER BY g.name
), ''''), f.owner
FROM found AS f
WHERE f.own = 0 AND COALESCE(OBJECTPROPERTY(f.object_id, CONCAT(''TableHas'', @event, ''Trigger'')), 1) = 1
UNION ALL
SELECT ''computed'', c.name, f.owner
FROM found AS f
JOIN sys.computed_columns AS c ON c.object_id = f.object_id
WHERE f.own = 0 AND @event = ''Insert'' AND (c.is_persisted = 1 OR EXISTS (
    SELECT 1 FROM sys.index_columns AS x WHERE x.object_id = c.object_id AND x.column_id = c.column_id
))
UNION ALL
SELECT p.reason, '''', f.owner
FROM found AS f
CROSS JOIN (VALUES
    (''default'', ''Insert'', ''TableHasDefaultCnst''), (''check'', ''Insert'', ''TableHasCheckCnst''),
    (''reference'', ''Delete'', ''TableHasForeignRef''), (''reference'', ''Update'', ''TableHasForeignRef'')
) AS p (reason, event, property)
WHERE f.own = 0 AND p.event = @event AND COALESCE(OBJECTPROPERTY(f.object_id, p.property), 1) = 1',
    N'@home sysname, @schema sysname, @name sysname, @event nvarchar(6), @trusted nvarchar(max),
        @columns nvarchar(max)',
    @home = @home, @schema = @schema, @name = @name, @event = @event, @trusted = @trusted, @columns = @columns
