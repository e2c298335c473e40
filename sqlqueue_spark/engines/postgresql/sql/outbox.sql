-- outbox.sql · PostgreSQL · the outbox table

-- name: outbox_exists
-- whether an outbox table is there
-- in: schema, table     out: its name
SELECT c.relname::text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relname = ? AND c.relkind IN ('r', 'p')

-- name: outbox_create
-- creates an endpoint's outbox table: that of the .NET persistence
-- Effect: none where the table is there already. Its columns are spelled with capitals.
CREATE TABLE IF NOT EXISTS {outbox} (
    "MessageId" varchar(200) PRIMARY KEY,
    "Dispatched" boolean NOT NULL DEFAULT false,
    "DispatchedAt" timestamp,
    "PersistenceVersion" varchar(23),
    "Operations" jsonb NOT NULL
)

-- name: outbox_index_dispatched_at
-- the index that the cleanup goes by
-- Index names are per schema, so it carries the table's name: under a plain one the second outbox table of a schema
-- would go without.
CREATE INDEX IF NOT EXISTS {dispatched_at} ON {outbox} ("DispatchedAt")

-- name: outbox_index_dispatched
-- the index that rows not dispatched are found by
-- Its name carries the table's, as that of outbox_index_dispatched_at.
CREATE INDEX IF NOT EXISTS {dispatched} ON {outbox} ("Dispatched")

-- name: outbox_seen
-- which of some message ids are there
-- in: array, as text, of message ids     out: message id
-- LATERAL with OFFSET 0: each id is looked up in the primary key; as a plain join the planner may walk the whole table
-- instead. Ids that others have inserted and not committed are not there yet.
SELECT i.id
FROM unnest(?::text[]) AS i (id)
CROSS JOIN LATERAL (SELECT FROM {outbox} WHERE "MessageId" = i.id OFFSET 0) AS o

-- name: outbox_seen_of
-- which of some message ids are there, written by one version
-- in: array, as text, of message ids, the version of their writer     out: message id
-- Rows of others say nothing here: what a .NET endpoint has handled was not sent by us. Else as outbox_seen.
SELECT i.id
FROM unnest(?::text[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT FROM {outbox} WHERE "MessageId" = i.id AND "PersistenceVersion" = ?::text OFFSET 0
) AS o

-- name: outbox_add
-- remembers message ids
-- in: version of the writer, array, as text, of message ids     out: number of rows
-- An id that is there is a unique violation; one that somebody else has inserted and not committed is waited for. Rows
-- are inserted in the order of the array: in the same order twins do not deadlock.
INSERT INTO {outbox} ("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion", "Operations")
SELECT i.id, true, statement_timestamp() AT TIME ZONE 'UTC', ?::text, '[]'::jsonb
FROM unnest(?::text[]) AS i (id)

-- name: outbox_add_new
-- remembers those of some message ids that are not there
-- in: version of the writer, array, as text, of message ids     out: message id of each row that was inserted
-- ON CONFLICT waits for an id that somebody else has inserted and not committed, and knows then whether it is there. Rows
-- are inserted in the order of the array: in the same order twins do not deadlock.
INSERT INTO {outbox} ("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion", "Operations")
SELECT i.id, true, statement_timestamp() AT TIME ZONE 'UTC', ?::text, '[]'::jsonb
FROM unnest(?::text[]) AS i (id)
ON CONFLICT ("MessageId") DO NOTHING
RETURNING "MessageId"

-- name: outbox_added
-- nothing to do: outbox_add_new tells itself what it has inserted

-- name: outbox_oldest
-- who wrote the oldest rows that are dispatched
-- out: version of the writer, number of rows, of the 1,000 oldest ones
-- They are found by the index on "DispatchedAt", however many rows there are.
SELECT o."PersistenceVersion", count(*)
FROM (
    SELECT "PersistenceVersion"
    FROM {outbox}
    WHERE "Dispatched"
    ORDER BY "DispatchedAt"
    LIMIT 1000
) AS o
GROUP BY o."PersistenceVersion"

-- name: outbox_clean
-- forgets the next message ids that are old enough
-- in: seconds that an id is kept     out: number of rows
-- Never rows that are not dispatched: a .NET endpoint has yet to send what they hold. SKIP LOCKED steps over rows that
-- others hold, so that nobody waits. Old by the database's clock. ORDER BY makes the index on "DispatchedAt" the cheapest
-- way, and not that on "Dispatched", by which nearly every row is found. MATERIALIZED: the rows are chosen once.
WITH batch AS MATERIALIZED (
    SELECT "MessageId"
    FROM {outbox}
    WHERE "Dispatched" AND "DispatchedAt" < statement_timestamp() AT TIME ZONE 'UTC' - ?::bigint * interval '1 second'
    ORDER BY "DispatchedAt"
    LIMIT 4000
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {outbox} AS o
USING batch
WHERE o."MessageId" = batch."MessageId"

-- name: outbox_report
-- what an outbox table holds
-- out: rows, rows not dispatched, when the oldest row was dispatched, the database's clock in UTC
SELECT count(*),
       count(*) FILTER (WHERE NOT "Dispatched"),
       min("DispatchedAt") FILTER (WHERE "Dispatched"),
       statement_timestamp() AT TIME ZONE 'UTC'
FROM {outbox}
