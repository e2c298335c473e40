-- subscriptions.sql · SQL Server · the table that tells which queue gets the events of which type

-- name: subscriptions_create
-- Creates the table of subscriptions as the .NET transport makes it.
CREATE TABLE {subscriptions} (
    QueueAddress nvarchar(200) NOT NULL,
    Endpoint nvarchar(200) NOT NULL,
    Topic nvarchar(200) NOT NULL,
    PRIMARY KEY CLUSTERED (Endpoint, Topic)
)

-- name: subscribers
-- Returns who has subscribed to some types.
-- nvarchar(4000): a type of more than 200 characters has no subscriber, and must not be cut to one that is.
-- BIN2 compares code by code, whatever the two collations are; trailing blanks it leaves out of account.
SELECT j.Topic, LEFT(s.QueueAddress, 1001)
FROM {subscriptions} AS s
JOIN OPENJSON(CAST(:topics AS nvarchar(max))) WITH (Topic nvarchar(4000) '$') AS j
    ON s.Topic = j.Topic COLLATE Latin1_General_BIN2
ORDER BY j.Topic, s.QueueAddress
OPTION (MAX_GRANT_PERCENT = 10)

-- name: subscriptions
-- Returns all subscriptions.
-- No more of a text than shows that it is too long: the table may be a stranger's.
SELECT LEFT(s.Endpoint, 1001), LEFT(s.Topic, 1001), LEFT(s.QueueAddress, 1001)
FROM {subscriptions} AS s
ORDER BY s.Topic, s.Endpoint
OPTION (MAX_GRANT_PERCENT = 10)

-- name: subscribe
-- Lets a queue have the events of some types, for an endpoint.
-- TABLOCK and HOLDLOCK, as the transport's own statement has them: each session that subscribes waits for the
-- others, and no other one inserts in between. BIN2 as in subscribers.
MERGE {subscriptions} WITH (HOLDLOCK, TABLOCK) AS s
USING (
    SELECT CAST(:address AS nvarchar(200)) AS QueueAddress, CAST(:endpoint AS nvarchar(200)) AS Endpoint,
        j.Topic
    FROM OPENJSON(CAST(:topics AS nvarchar(max))) WITH (Topic nvarchar(200) '$') AS j
) AS n
    ON s.Endpoint = n.Endpoint COLLATE Latin1_General_BIN2 AND s.Topic = n.Topic COLLATE Latin1_General_BIN2
WHEN MATCHED AND s.QueueAddress <> n.QueueAddress COLLATE Latin1_General_BIN2 THEN
    UPDATE SET QueueAddress = n.QueueAddress
WHEN NOT MATCHED THEN
    INSERT (QueueAddress, Endpoint, Topic) VALUES (n.QueueAddress, n.Endpoint, n.Topic)
OPTION (MAX_GRANT_PERCENT = 10);

-- name: unsubscribe
-- Ends an endpoint's subscriptions to some types.
DELETE s
FROM {subscriptions} AS s
WHERE s.Endpoint = CAST(:endpoint AS nvarchar(200)) COLLATE Latin1_General_BIN2
  AND s.Topic IN (
      SELECT j.Topic COLLATE Latin1_General_BIN2
      FROM OPENJSON(CAST(:topics AS nvarchar(max))) WITH (Topic nvarchar(200) '$') AS j
  )

-- name: subscription_tables
-- Returns the tables of subscriptions that this login may read.
-- COLLATE: the catalogue's columns have collations of their own.
SELECT s.name, t.name
FROM sys.tables AS t
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
JOIN sys.columns AS c ON c.object_id = t.object_id
WHERE c.name COLLATE Latin1_General_CI_AS IN (N'QueueAddress', N'Endpoint', N'Topic')
  AND HAS_PERMS_BY_NAME(QUOTENAME(s.name) + N'.' + QUOTENAME(t.name), 'OBJECT', 'SELECT') = 1
GROUP BY s.name, t.name
HAVING COUNT(*) = 3
ORDER BY s.name, t.name

-- name: present_tables
-- Returns which of some tables are there, as they were asked for.
-- Only tables to which the login has some right. COLLATE: the catalogue decides which names are the same.
SELECT a.value, b.value
FROM OPENJSON(CAST(:schemas AS nvarchar(max))) AS a
JOIN OPENJSON(CAST(:tables AS nvarchar(max))) AS b ON b.[key] = a.[key]
JOIN sys.schemas AS s ON s.name = CAST(a.value AS nvarchar(128)) COLLATE CATALOG_DEFAULT
JOIN sys.tables AS t ON t.schema_id = s.schema_id
    AND t.name = CAST(b.value AS nvarchar(776)) COLLATE CATALOG_DEFAULT

-- none: remedy_subscriptions · a dot in an address has no meaning here.

-- name: remedy_subscription
-- A remedy for people: ends the subscriptions of a queue that is not there.
DELETE FROM {subscriptions} WHERE QueueAddress = :address;
