-- outbox.sql · PostgreSQL · the outbox table

-- name: outbox_exists
-- Returns whether an outbox table is there.
-- out: its name, whether a unique index has the message id alone as its key
-- A partitioned table may have a primary key of two columns, which would take one id twice. A deferrable
-- constraint looks only at the commit, and a filtered index only at some rows.
SELECT c.relname::text, EXISTS (
    SELECT FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
      AND i.indnkeyatts = 1 AND a.attname = 'MessageId'
)
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = :schema AND c.relname = :name AND c.relkind IN ('r', 'p')

-- name: outbox_create
-- Creates an endpoint's outbox table: that of the .NET persistence. The columns' names are spelled with
-- capitals.
CREATE TABLE IF NOT EXISTS {outbox} (
    "MessageId" varchar(200) PRIMARY KEY,
    "Dispatched" boolean NOT NULL DEFAULT false,
    "DispatchedAt" timestamp,
    "PersistenceVersion" varchar(23),
    "Operations" jsonb NOT NULL
)

-- name: outbox_index_dispatched_at
-- Creates the index that the cleanup goes by. Names of indexes are per schema: under a plain name, the second
-- outbox table of a schema would go without it.
CREATE INDEX IF NOT EXISTS {dispatched_at} ON {outbox} ("DispatchedAt")

-- name: outbox_index_dispatched
-- Creates the index that finds rows that are not dispatched.
CREATE INDEX IF NOT EXISTS {dispatched} ON {outbox} ("Dispatched")

-- name: outbox_seen
-- Returns which of some message ids are there.
-- out: message id, as it was asked for
-- LATERAL with OFFSET 0 makes the server look up each id in the primary key; for a plain join the planner may
-- walk the whole table instead. The statement does not see ids that others have inserted and not committed.
SELECT i.id
FROM pg_catalog.unnest(:ids::text[]) AS i (id)
CROSS JOIN LATERAL (SELECT FROM {outbox} WHERE "MessageId"::text = i.id OFFSET 0) AS o

-- name: outbox_seen_of
-- Returns which of some message ids are there, written by one version.
-- Rows of other writers say nothing here: we did not send what a .NET endpoint has handled. All else is as in
-- outbox_seen.
SELECT i.id
FROM pg_catalog.unnest(:ids::text[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT FROM {outbox}
    WHERE "MessageId"::text = i.id AND "PersistenceVersion"::text = :version::text
    OFFSET 0
) AS o

-- name: outbox_add
-- Remembers message ids.
-- An id that is there already is a unique violation. The statement waits for an id that another transaction
-- has inserted and not committed. It inserts rows in the order of the array: twins insert in the same order,
-- so they do not deadlock.
INSERT INTO {outbox} ("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion", "Operations")
SELECT i.id, true, statement_timestamp() AT TIME ZONE 'UTC', :version::text, '[]'::jsonb
FROM pg_catalog.unnest(:ids::text[]) AS i (id)

-- name: outbox_add_new
-- Remembers those of some message ids that are not there.
-- out: message id of each row that was inserted
-- ON CONFLICT waits for an id that another transaction has inserted and not committed, and then knows whether
-- the id is there. Order as in outbox_add.
INSERT INTO {outbox} ("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion", "Operations")
SELECT i.id, true, statement_timestamp() AT TIME ZONE 'UTC', :version::text, '[]'::jsonb
FROM pg_catalog.unnest(:ids::text[]) AS i (id)
ON CONFLICT ("MessageId") DO NOTHING
RETURNING "MessageId"

-- name: outbox_oldest
-- Returns who wrote the oldest rows that are dispatched.
-- out: version of the writer, number of its rows among the 1,000 oldest ones
-- The index on "DispatchedAt" finds these rows, however many rows there are.
SELECT o."PersistenceVersion", count(*)
FROM (
    SELECT "PersistenceVersion"
    FROM {outbox}
    WHERE "Dispatched"
    ORDER BY "DispatchedAt"
    LIMIT 1000
) AS o
GROUP BY o."PersistenceVersion"

-- name: outbox_has_outcomes
-- Returns one row if outcomes of received rows are remembered.
-- Their marks begin with "outcomes". No language sorts s and t as one letter, or s and a hexadecimal digit
-- behind it. ORDER BY makes the primary key the cheapest way.
SELECT "MessageId"
FROM {outbox}
WHERE "MessageId"::text >= 'outcomes' AND "MessageId"::text < 'outcomet'
ORDER BY "MessageId"::text
LIMIT 1

-- name: outbox_clean
-- Forgets the next message ids that are old enough.
-- The statement never deletes rows that are not dispatched: a .NET endpoint has yet to send what they hold.
-- SKIP LOCKED steps over rows that others hold, so that no session waits. The database's clock decides what
-- is old. ORDER BY makes the index on "DispatchedAt" the cheapest way; the index on "Dispatched" would find
-- nearly every row. The delete looks up each id of an array in the primary key; joined, the server may walk
-- the whole table for each where its statistics are those of an empty one. It does not go by ctid, because a
-- table may be partitioned.
DELETE FROM {outbox}
WHERE "MessageId"::text = ANY (ARRAY(
    SELECT "MessageId"::text
    FROM {outbox}
    WHERE "Dispatched"
        AND "DispatchedAt"
            < statement_timestamp() AT TIME ZONE 'UTC' - :seconds::double precision * interval '1 second'
    ORDER BY "DispatchedAt"
    LIMIT 4000
    FOR UPDATE SKIP LOCKED
))

-- name: outbox_report
-- Returns what an outbox table holds.
-- out: rows, rows not dispatched, when the oldest row was dispatched, the database's clock in UTC
SELECT count(*),
       count(*) FILTER (WHERE NOT "Dispatched"),
       min("DispatchedAt") FILTER (WHERE "Dispatched"),
       statement_timestamp() AT TIME ZONE 'UTC'
FROM {outbox}
