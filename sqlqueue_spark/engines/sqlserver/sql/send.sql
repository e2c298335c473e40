-- send.sql · SQL Server · what a sender says to a queue table

-- name: isolation_read_committed
-- Isolates the transactions of a connection: a statement sees what was committed when it began.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: isolation_repeatable_read
-- Isolates the transactions of a connection: what a transaction has read stays as it was.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: isolation_serializable
-- Isolates the transactions of a connection: they act as if one ran after the other.
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE

-- name: isolation_snapshot
-- Isolates the transactions of a connection: a transaction sees what was committed when it began. The server
-- refuses it with error 3952 until the database allows it (ALTER DATABASE … SET ALLOW_SNAPSHOT_ISOLATION ON).
SET TRANSACTION ISOLATION LEVEL SNAPSHOT

-- name: insert
-- Sends messages.
-- in: the messages as JSON [[n, id, time of expiry, headers, body, correlation id, reply-to address,
--     recoverable],…]
-- out: number of rows
-- The sender needs INSERT on the table, but not SELECT. {columns} are those of the seven columns that the
-- table has, quoted; the same list stands in the text twice. Not every table has all seven: Recoverable is
-- being removed, some tables lack older columns, and a computed column takes no value. CAST: a long text
-- arrives as ntext, which OPENJSON refuses. OPENJSON decodes Base64 where varbinary is asked for. ORDER BY
-- makes the identity follow the list. MAX_GRANT_PERCENT as in stage_count. Times are in UTC, or NULL. Where
-- nothing says whether a message is recoverable, as a sender's messages do not, it is.
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM (
    SELECT j.n,
           j.Id,
           j.CorrelationId,
           j.ReplyToAddress,
           COALESCE(j.Recoverable, CAST(1 AS bit)) AS Recoverable,
           j.Expires,
           j.Headers,
           j.Body
    FROM OPENJSON(CAST(:messages AS nvarchar(max))) WITH (
        n int '$[0]',
        Id uniqueidentifier '$[1]',
        Expires datetime2(3) '$[2]',
        Headers nvarchar(max) '$[3]',
        Body varbinary(max) '$[4]',
        CorrelationId nvarchar(255) '$[5]',
        ReplyToAddress nvarchar(255) '$[6]',
        Recoverable bit '$[7]'
    ) AS j
) AS m
ORDER BY m.n
OPTION (MAX_GRANT_PERCENT = 10)

-- name: insert_by_policy
-- Nothing to say: a security policy lets insert run, and refuses single rows.

-- name: code_lock
-- Nothing to say: with the right to insert alone there is no lock to take before an insert. So foreign_code
-- is asked once more behind it, when the insert's own lock keeps new triggers out.

-- name: look_lock
-- Nothing to say: what a look calls (a security policy, a computed column) can change nothing.

-- name: foreign_code
-- Returns why rows may not be put into a table that no option names, or deleted, or looked at.
-- in: schema, table, object ids of tables whose owners are trusted (JSON), the columns that it must have
--     (JSON, each with a blank and each type that it may have), the event (4: INSERT, 8: DELETE, 0: a look)
-- out: reason, what it is about, the table's owner
-- Trusted are this user, the owners of these tables, and dbo. In another database of the server, dbo is
-- trusted where one login owns both databases. What a default or a check calls can change nothing, but it
-- reads as this login, so the table of another owner has none. The text runs in the table's own database,
-- because OBJECTPROPERTY, which needs no right but one to the table, knows only the present one.
DECLARE @home sysname = DB_NAME(),
        @schema sysname = :schema,
        @name sysname = :name,
        @trusted nvarchar(max) = :trusted,
        @columns nvarchar(max) = :columns,
        @event nvarchar(30) = CASE :event WHEN 8 THEN N'TableHasDeleteTrigger'
            WHEN 4 THEN N'TableHasInsertTrigger' ELSE N'' END;
EXEC {catalog}.sys.sp_executesql N'
WITH owned AS (
    SELECT t.object_id, t.is_external, OBJECTPROPERTY(t.object_id, ''OwnerId'') AS owner_id
    FROM sys.tables AS t
    JOIN sys.schemas AS s ON s.schema_id = t.schema_id
    WHERE s.name = @schema AND t.name = @name
), found AS (
    SELECT o.object_id, o.is_external, USER_NAME(o.owner_id) AS owner, CASE
        WHEN DB_NAME() = @home AND (o.owner_id IN (1, DATABASE_PRINCIPAL_ID()) OR o.owner_id IN (
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
SELECT ''kind'', '''', f.owner FROM found AS f WHERE f.is_external = 1
UNION ALL
SELECT DISTINCT ''column'', w.name, f.owner
FROM found AS f
CROSS JOIN wanted AS w
WHERE NOT EXISTS (
    SELECT 1 FROM typed AS c JOIN wanted AS x ON x.name = c.name AND x.type = c.type WHERE c.name = w.name
)
UNION ALL
SELECT ''type'', c.name, f.owner FROM found AS f CROSS JOIN typed AS c WHERE c.is_user_defined = 1
UNION ALL
SELECT ''trigger'', '''', f.owner
FROM found AS f
WHERE f.own = 0 AND @event <> '' AND COALESCE(OBJECTPROPERTY(f.object_id, @event), 1) = 1
UNION ALL
SELECT ''default'', '''', f.owner
FROM found AS f
WHERE f.own = 0 AND @event = ''TableHasInsertTrigger''
  AND COALESCE(OBJECTPROPERTY(f.object_id, ''TableHasDefaultCnst''), 1) = 1
UNION ALL
SELECT ''constraint'', '''', f.owner
FROM found AS f
WHERE f.own = 0 AND @event = ''TableHasInsertTrigger''
  AND COALESCE(OBJECTPROPERTY(f.object_id, ''TableHasCheckCnst''), 1) = 1',
    N'@home sysname, @schema sysname, @name sysname, @trusted nvarchar(max), @columns nvarchar(max),
        @event nvarchar(30)',
    @home = @home, @schema = @schema, @name = @name, @trusted = @trusted, @columns = @columns, @event = @event
