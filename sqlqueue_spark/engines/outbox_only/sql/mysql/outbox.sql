-- outbox.sql · MySQL · the outbox table

-- name: outbox_exists
-- whether an outbox table is there
-- in: schema (a database here; NULL: the one we are connected to), table     out: its name
SELECT t.table_name
FROM information_schema.tables AS t
WHERE t.table_schema = COALESCE(?, DATABASE()) AND t.table_name = ? AND t.table_type = 'BASE TABLE'

-- name: outbox_create
-- creates an endpoint's outbox table: that of the .NET persistence
-- Effect: none where the table is there already; in a race one waits for the other. The statement commits by itself.
CREATE TABLE IF NOT EXISTS {outbox} (
    MessageId nvarchar(200) NOT NULL,
    Dispatched bit NOT NULL DEFAULT 0,
    DispatchedAt datetime,
    PersistenceVersion varchar(23) NOT NULL,
    Operations json NOT NULL,
    PRIMARY KEY (MessageId),
    INDEX Index_DispatchedAt (DispatchedAt),
    INDEX Index_Dispatched (Dispatched)
) DEFAULT CHARSET = ascii

-- name: outbox_index_dispatched_at
-- nothing to do: outbox_create makes the index

-- name: outbox_index_dispatched
-- nothing to do: outbox_create makes the index

-- name: outbox_seen
-- which of some message ids are there
-- in: message ids as JSON     out: message id, as it was asked for
-- The character sets: else the ids would pass through that of the connection and that of the schema, and be mangled where
-- those do not know a letter. nvarchar is utf8mb3, and the key is of no use to a text of another one. STRAIGHT_JOIN: each
-- id is looked up in the primary key.
SELECT j.id
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS j
STRAIGHT_JOIN {outbox} AS o ON o.MessageId = CONVERT(j.id USING utf8mb3)

-- name: outbox_seen_of
-- nothing to do: no sink sends here, and what Outbox.process remembers has one form only

-- name: outbox_add
-- remembers message ids
-- in: version of the writer, message ids as JSON     out: number of rows
-- An id that is there is error 1062. DISTINCT, in the column's character set: ids that are the same to its collation are
-- one row. ORDER BY: in the same order twins do not deadlock. Character sets as in outbox_seen.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.id, 1, UTC_TIMESTAMP(), ?, '[]'
FROM (
    SELECT DISTINCT CONVERT(j.id USING utf8mb3) AS id
    FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS j
) AS i
ORDER BY i.id

-- name: outbox_add_new
-- remembers those of some message ids that are not there; outbox_added tells which
-- in: a mark of this call, message ids as JSON     out: nothing
-- It waits for an id that somebody else has inserted and not committed. A duplicate changes nothing. Not INSERT IGNORE,
-- which would also make a warning of an id that the column cannot keep, and so store a wrong one. ORDER BY: in the same
-- order twins do not deadlock. Character sets as in outbox_seen.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.id, 1, UTC_TIMESTAMP(), ?, '[]'
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS i
ORDER BY i.id
ON DUPLICATE KEY UPDATE MessageId = MessageId

-- name: outbox_added
-- which of some message ids outbox_add_new has inserted
-- in: message ids as JSON, the mark of that call     out: message id, as it was asked for
-- No INSERT tells here what it has inserted, and the number of rows depends on the connection. Rows of our own transaction
-- are seen under every isolation level. Else as outbox_seen.
SELECT j.id
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS j
STRAIGHT_JOIN {outbox} AS o ON o.MessageId = CONVERT(j.id USING utf8mb3)
WHERE o.PersistenceVersion = ?

-- name: outbox_oldest
-- nothing to do: no sink sends here, and what Outbox.process remembers has one form only

-- name: outbox_clean
-- forgets the next message ids that are old enough
-- in: seconds that an id is kept     out: number of rows
-- Never rows that are not dispatched: a .NET endpoint has yet to send what they hold. SKIP LOCKED steps over rows that
-- others hold, so that nobody waits. Old by the database's clock.
DELETE o
FROM (
    SELECT MessageId
    FROM {outbox}
    WHERE Dispatched = 1 AND DispatchedAt < UTC_TIMESTAMP() - INTERVAL ? SECOND
    ORDER BY DispatchedAt
    LIMIT 4000
    FOR UPDATE SKIP LOCKED
) AS batch
STRAIGHT_JOIN {outbox} AS o ON o.MessageId = batch.MessageId

-- name: outbox_report
-- what an outbox table holds
-- out: rows, rows not dispatched, when the oldest row was dispatched, the database's clock in UTC
SELECT COUNT(*),
       CAST(COALESCE(SUM(Dispatched = 0), 0) AS SIGNED),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       UTC_TIMESTAMP()
FROM {outbox}
