-- admin.sql · PostgreSQL · what people do to queues: create, measure, look into, purge

-- name: server
-- Returns who we are to the server, what the server is, and whether it understands all our statements.
-- out: login, database, product and version; what is counted, how far it goes, how far it must go
SELECT session_user::text, current_database()::text, 'PostgreSQL ' || current_setting('server_version'),
    'server version', current_setting('server_version_num')::int / 10000, 13

-- name: clock
-- Returns the time of the database's clock, by which messages expire.
-- out: now, in UTC
SELECT statement_timestamp() AT TIME ZONE 'UTC'

-- name: schema
-- Returns the name of a schema, if it is there.
SELECT nspname::text FROM pg_catalog.pg_namespace WHERE nspname = :schema

-- name: create_schema
-- A remedy for people: creates the schema that an address names.
CREATE SCHEMA {schema}

-- name: create_lock
-- Makes installers of the same table wait for one another.
-- The server frees the lock when the transaction ends. CREATE TABLE IF NOT EXISTS alone is not safe in a
-- race: it can end in a unique violation in the catalogue.
SELECT pg_advisory_xact_lock(pg_catalog.hashtextextended(:name, 0))

-- name: create
-- Creates a queue table: the classic one, but with bigserial. A serial stops at 2,147,483,647 rows in the
-- table's life, which is five days at 5,000 messages a second. The statement names no constraints: index
-- names are per schema, and PostgreSQL finds free ones that carry the table's name.
CREATE TABLE IF NOT EXISTS {queue} (
    id uuid PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq bigserial UNIQUE
)

-- none: create_heap · queue tables have one shape here.

-- name: script_begin
-- Begins a script that creates one table; create, stage_create or outbox_create follows.
-- Each table has a transaction of its own, under the lock of create_lock.
BEGIN;
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(:name, 0));

-- name: script_end
-- Ends a script that creates one table.
;
COMMIT;

-- name: length
-- Returns how much is in a queue.
-- out: rows, expired, bytes of headers and bodies, the database's clock in UTC
-- Lengths as in claim.
SELECT count(*),
       count(*) FILTER (WHERE expires <= statement_timestamp() AT TIME ZONE 'UTC'),
       coalesce(sum(coalesce(octet_length(headers::text), 0) + coalesce(octet_length(body), 0)), 0)::bigint,
       statement_timestamp() AT TIME ZONE 'UTC'
FROM ONLY {queue}

-- name: count_up_to
-- Counts the rows of a queue, and stops at a number.
SELECT count(*) FROM (SELECT FROM ONLY {queue} LIMIT :most) AS counted

-- name: peek
-- Returns the next rows of a queue, and locks nothing.
-- out: the eight columns of a message, and whether it has expired
-- Columns that the table does not have arrive as NULL.
SELECT id::text AS "Id",
       {CorrelationId}::text AS "CorrelationId",
       {ReplyToAddress}::text AS "ReplyToAddress",
       {Recoverable}::boolean AS "Recoverable",
       {message},
       expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired
FROM ONLY {queue}
WHERE seq > :after
ORDER BY seq
LIMIT :count

-- none: peek_by_scan · peek needs no index.

-- name: peek_headers
-- Returns the next rows of a queue without their bodies, and locks nothing.
-- out: seq, id, whether it has expired, headers, bytes of the body (NULL: it has none)
-- Headers that no client can read count as bytes of the body.
SELECT seq::bigint,
       id::text,
       expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC',
       CASE WHEN octet_length(headers::text) <= {largest_row} THEN headers::text END,
       CASE WHEN octet_length(headers::text) <= {largest_row} THEN octet_length(body)::bigint
            ELSE octet_length(headers::text)::bigint + coalesce(octet_length(body), 0) END
FROM ONLY {queue}
WHERE seq > :after AND seq <= :up_to
ORDER BY seq
LIMIT :count

-- name: purge
-- Deletes the next rows, whatever they are.
-- SKIP LOCKED and ctid as in take: rows that receivers hold stay, and no session waits. Joined by seq, the
-- server may walk the whole table for each row where its statistics are those of an empty table.
DELETE FROM ONLY {queue}
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM ONLY {queue}
    WHERE seq > :after AND seq <= :up_to
    ORDER BY seq
    LIMIT :count
    FOR UPDATE SKIP LOCKED
))
RETURNING seq

-- name: purge_expired
-- Deletes the next expired rows.
-- The database's clock decides what has expired. There is no index on expires: the statement meets the rows
-- in seq order, and each row only once, because the next batch begins after this one. All else is as in
-- purge.
DELETE FROM ONLY {queue}
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM ONLY {queue}
    WHERE seq > :after AND seq <= :up_to AND expires <= statement_timestamp() AT TIME ZONE 'UTC'
    ORDER BY seq
    LIMIT :count
    FOR UPDATE SKIP LOCKED
))
RETURNING seq
