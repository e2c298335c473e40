-- delayed.sql · SQL Server · tables of messages that wait until they are due

-- name: delayed_create
-- Creates a table of delayed messages as the .NET transport makes it, without a primary key.
CREATE TABLE {delayed} (
    Headers nvarchar(max) NOT NULL,
    Body varbinary(max) NULL,
    Due datetime NOT NULL,
    RowVersion bigint IDENTITY(1,1) NOT NULL
)

-- name: delayed_index
-- Creates the index that finds what is due.
CREATE NONCLUSTERED INDEX Index_Due ON {delayed} (Due)

-- none: delayed_zone · the tables tell times in UTC here.
-- none: delayed_stored · the tables tell times in UTC here.

-- name: delayed_next
-- Returns how long it takes until the first message is due.
-- One probe of the index on Due. READUNCOMMITTED: the look waits for no lock. A row that a mover has just
-- taken counts, and the next look does not see it any more.
SELECT DATEDIFF_BIG(millisecond, GETUTCDATE(), MIN(Due)) / 1000.0 FROM {delayed} WITH (READUNCOMMITTED)

-- shared: due_row
SELECT CONCAT(d.RowVersion, ' ', CONVERT(varchar(23), d.Due, 126)),
       CASE WHEN w.place = 0 THEN 0 ELSE w.place - 1 END,
       SUBSTRING(h.text, CASE WHEN w.place = 0 THEN 1 ELSE w.place END, 2147483647),
       CONVERT(varchar(23), d.Due, 126),
       o.id
FROM {delayed} AS d WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
{with_origin}
CROSS APPLY (SELECT CHARINDEX(N',"NServiceBus.SqlServer.ForwardDestination":', h.text) AS place) AS w
WHERE d.Due <= GETUTCDATE()

-- shared: with_origin
-- The text of the headers, and the Id that the header of the origin names; NULL without one. BIN2 counts an
-- astral character as two. A collation _SC, or one of version 140, counts one: then a place that was found
-- under the one is another one under the other.
CROSS APPLY (SELECT CAST(d.Headers AS nvarchar(max)) COLLATE Latin1_General_BIN2 AS text) AS h
CROSS APPLY (SELECT CHARINDEX(N',"sqlqueue.Origin":"', h.text) AS place) AS p
CROSS APPLY (
    SELECT CASE WHEN p.place > 0 THEN LOWER(CAST(
        TRY_CAST(SUBSTRING(h.text, p.place + 20, 36) AS uniqueidentifier) AS varchar(36))) END AS id
) AS o

-- shared: of_moved
-- The messages of these rows. Only Due has an index: each Due is sought once, and a hash finds the rows among
-- those of one Due. This transaction has locked them, so shared locks are enough, which end with each row.
-- READPAST steps over rows of another mover; READCOMMITTEDLOCK as in oldest.
(
    (SELECT DISTINCT CAST(m.Due AS datetime) AS Due FROM OPENJSON(@moved) WITH (Due varchar(23) '$[2]') AS m)
    AS t
    INNER LOOP JOIN {delayed} AS d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON d.Due = t.Due
) ON d.RowVersion = j.RowVersion

-- name: delayed_due
-- Locks the next messages that are due, in the order in which they are due.
-- in: how many, at most 2,400
-- out: which row: its RowVersion and its Due; the Id is the one that the header of the origin names
-- FORCESEEK goes by the index on Due, whatever its name is: a scan would lock every row that waits. The
-- statement reads Headers, so on a heap it locks the row itself. FAST 1 and MAXDOP 1 as in claim. Due comes
-- as a text, which the statements below get back as it is: a driver's time would not be the same datetime.
-- What style 126 writes (with a T) is read alike whatever language and DATEFORMAT a login has. The headers as
-- in the twin.
{due_row}
ORDER BY d.Due
OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
OPTION (FAST 1, MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: delayed_due_behind
-- As delayed_due, behind all messages of a Due.
-- No index tells messages of one Due apart, and a look would lock all of them. So the rest of that Due waits
-- for the next look from the start. Two milliseconds later is the next datetime.
{due_row}
  AND d.Due >= DATEADD(millisecond, 2, CAST(:since AS datetime))
ORDER BY d.Due
OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
OPTION (FAST 1, MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: delayed_headers
-- Returns the headers of messages that delayed_due has locked.
-- in: the rows as JSON [[n, RowVersion, Due, …],…]     out: NULL instead of the id
DECLARE @moved nvarchar(max) = :moved;
SELECT CONCAT(d.RowVersion, ' ', CONVERT(varchar(23), d.Due, 126)), NULL, d.Headers
FROM OPENJSON(@moved) WITH (RowVersion bigint '$[1]') AS j
INNER HASH JOIN {of_moved}
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: delayed_send
-- Moves messages that delayed_due has locked to their queue, in the order in which they are given.
-- in: the rows as JSON [[n, RowVersion, Due, new id, how many characters of its headers it keeps, what it
--     has behind these],…]
-- The rows are inserted first, in their order: what OUTPUT inserts has none. {columns} are those of the
-- queue. OPENJSON and ORDER BY as in insert.
DECLARE @moved nvarchar(max) = :moved, @sent bigint, @left bigint;
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM (
    SELECT j.n,
           j.Id,
           CAST(NULL AS nvarchar(255)) AS CorrelationId,
           CAST(NULL AS nvarchar(255)) AS ReplyToAddress,
           CAST(1 AS bit) AS Recoverable,
           CAST(NULL AS datetime) AS Expires,
           LEFT(CAST(d.Headers AS nvarchar(max)) COLLATE Latin1_General_BIN2, j.kept) + j.rest AS Headers,
           COALESCE(d.Body, 0x) AS Body
    FROM OPENJSON(@moved) WITH (
        n int '$[0]',
        RowVersion bigint '$[1]',
        Id uniqueidentifier '$[3]',
        kept int '$[4]',
        rest nvarchar(max) '$[5]'
    ) AS j
    INNER HASH JOIN {of_moved}
) AS m
ORDER BY m.n
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10);
SET @sent = ROWCOUNT_BIG();
DELETE d
FROM OPENJSON(@moved) WITH (RowVersion bigint '$[1]') AS j
INNER HASH JOIN {of_moved}
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10);
SET @left = ROWCOUNT_BIG();
SELECT @left, @sent

-- name: delayed_length
-- Returns how much waits in a table of delayed messages: for each end of the headers of messages that wait
-- for a database, and for all others.
-- READPAST: it waits for no lock. A row that is just moved does no harm, and one that is just sent counts
-- next time. Headers are never read uncommitted (error 7105); READCOMMITTEDLOCK as in oldest.
SELECT e.ending,
       COUNT_BIG(*),
       COUNT_BIG(CASE WHEN d.Due <= GETUTCDATE() THEN 1 END),
       DATEDIFF_BIG(millisecond, GETUTCDATE(), MIN(d.Due)) / 1000.0
FROM {delayed} AS d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
CROSS APPLY (SELECT CAST(d.Headers AS nvarchar(max)) COLLATE Latin1_General_BIN2 AS text) AS h
CROSS APPLY (SELECT CHARINDEX(CAST(:ending AS nvarchar(400)), h.text) AS place) AS w
CROSS APPLY (SELECT CASE WHEN w.place > 0 THEN SUBSTRING(h.text, w.place, 400) END AS ending) AS e
GROUP BY e.ending
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10)

-- name: delayed_waiting
-- Locks the next messages that wait for a database, in the order in which they are given up.
-- An update lock stays until the transaction ends, also on a row that a condition then leaves out, and 5,000
-- locks may become one of the table. So the rows are first found under shared locks that end with each row.
-- Only what has the Due of one of them is locked, as in of_moved.
DECLARE @found TABLE (RowVersion bigint NOT NULL, Due datetime NOT NULL);
INSERT INTO @found (RowVersion, Due)
SELECT c.RowVersion, c.Due
FROM {delayed} AS c WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE c.Due >= CAST(:since AS datetime)
  AND CHARINDEX(CAST(:ending AS nvarchar(400)),
      CAST(c.Headers AS nvarchar(max)) COLLATE Latin1_General_BIN2) > 0
ORDER BY c.Due
OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
OPTION (FAST 1, MAXDOP 1, MAX_GRANT_PERCENT = 10);
SELECT CONCAT(d.RowVersion, ' ', CONVERT(varchar(23), d.Due, 126)),
       w.place - 1,
       CONVERT(varchar(23), d.Due, 126),
       o.id
FROM @found AS f
INNER HASH JOIN (
    (SELECT DISTINCT g.Due FROM @found AS g) AS t
    INNER LOOP JOIN {delayed} AS d WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON d.Due = t.Due
) ON d.RowVersion = f.RowVersion
{with_origin}
CROSS APPLY (SELECT CHARINDEX(CAST(:ending AS nvarchar(400)), h.text) AS place) AS w
WHERE w.place > 0
ORDER BY d.Due
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10)
