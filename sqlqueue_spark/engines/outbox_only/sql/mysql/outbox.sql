-- outbox.sql · MySQL · the outbox table

-- name: outbox_exists
-- Returns whether an outbox table is there.
-- in: schema (a database here; NULL: the one we are connected to), table
SELECT t.table_name, EXISTS (
    SELECT 1
    FROM information_schema.statistics AS s
    WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.non_unique = 0
    GROUP BY s.index_name
    HAVING COUNT(*) = 1 AND MAX(s.sub_part) IS NULL AND LOWER(MAX(s.column_name)) = 'messageid'
)
FROM information_schema.tables AS t
WHERE t.table_schema = COALESCE(:schema, DATABASE()) AND t.table_name = :name AND t.table_type = 'BASE TABLE'

-- name: outbox_create
-- Creates an endpoint's outbox table: that of the .NET persistence. In a race one session waits for the
-- other. The statement commits by itself.
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

-- none: outbox_index_dispatched_at · outbox_create makes the index.
-- none: outbox_index_dispatched · outbox_create makes the index.

-- name: outbox_seen
-- Returns which of some message ids are there.
-- The character sets: without them the server would convert the ids to the connection's character set and to
-- the schema's, and mangle letters that one of these does not know. nvarchar is utf8mb3, and the key does not
-- serve a text of another character set. STRAIGHT_JOIN makes the server look up each id in the primary key.
-- The second condition leaves out an id that only the column's collation takes for the same.
SELECT j.id
FROM JSON_TABLE(CONVERT(:ids USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$'))
    AS j
STRAIGHT_JOIN {outbox} AS o
    ON o.MessageId = CONVERT(j.id USING utf8mb3)
    AND CAST(CONVERT(o.MessageId USING utf8mb4) AS BINARY) = CAST(j.id AS BINARY)

-- name: outbox_seen_of
-- Returns which of some message ids outbox_add_new has inserted.
-- in: message ids as JSON, the mark of that call     out: message id, as it was asked for
-- No INSERT returns here what it has inserted, and the number of rows depends on the connection. The
-- statement sees rows of our own transaction under every isolation level. All else is as in outbox_seen.
SELECT j.id
FROM JSON_TABLE(CONVERT(:ids USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$'))
    AS j
STRAIGHT_JOIN {outbox} AS o ON o.MessageId = CONVERT(j.id USING utf8mb3)
WHERE o.PersistenceVersion = :version

-- name: outbox_add
-- Remembers message ids.
-- An id that is there already is error 1062. DISTINCT works in the column's character set: ids that are the
-- same to its collation become one row. ORDER BY: twins insert in the same order, so they do not deadlock.
-- Character sets as in outbox_seen.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.id, 1, UTC_TIMESTAMP(), :version, '[]'
FROM (
    SELECT DISTINCT CONVERT(j.id USING utf8mb3) AS id
    FROM JSON_TABLE(CONVERT(:ids USING utf8mb4), '$[*]'
        COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS j
) AS i
ORDER BY i.id

-- name: outbox_add_new
-- Remembers those of some message ids that are not there; outbox_seen_of returns which.
-- in: a mark of this call, message ids as JSON     out: nothing
-- A duplicate changes nothing. INSERT IGNORE will not do: where the column cannot keep an id, it makes that a
-- mere warning too, and so stores a wrong id. ORDER BY as in outbox_add, character sets as in outbox_seen.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.id, 1, UTC_TIMESTAMP(), :version, '[]'
FROM JSON_TABLE(CONVERT(:ids USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$'))
    AS i
ORDER BY i.id
ON DUPLICATE KEY UPDATE MessageId = MessageId

-- none: outbox_oldest · no sink sends here, and what Outbox.process remembers has one form only.
-- none: outbox_has_outcomes · likewise.

-- name: outbox_clean
-- Forgets the next message ids that are old enough.
DELETE o
FROM (
    SELECT MessageId
    FROM {outbox}
    WHERE Dispatched = 1 AND DispatchedAt < UTC_TIMESTAMP() - INTERVAL :seconds SECOND
    ORDER BY DispatchedAt
    LIMIT 4000
    FOR UPDATE SKIP LOCKED
) AS batch
STRAIGHT_JOIN {outbox} AS o ON o.MessageId = batch.MessageId

-- name: outbox_report
-- Returns what an outbox table holds.
SELECT COUNT(*),
       CAST(COALESCE(SUM(Dispatched = 0), 0) AS SIGNED),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       UTC_TIMESTAMP()
FROM {outbox}
