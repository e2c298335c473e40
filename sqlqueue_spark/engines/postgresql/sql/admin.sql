-- admin.sql · PostgreSQL · what people do to queues: create, measure, look into, purge

-- name: server
-- who we are to the server, and what it is
-- out: login, database, product and version
SELECT session_user::text, current_database()::text, 'PostgreSQL ' || current_setting('server_version')

-- name: clock
-- the database's clock, by which messages expire
-- out: now, in UTC
SELECT statement_timestamp() AT TIME ZONE 'UTC'

-- name: schema
-- whether a schema is there
-- in: schema     out: its name
SELECT nspname::text FROM pg_catalog.pg_namespace WHERE nspname = ?

-- name: create_schema
-- a remedy for people: the schema that an address names
CREATE SCHEMA {schema}

-- name: create_lock
-- makes installers of the same table wait for one another
-- in: the table's full name, quoted
-- CREATE TABLE IF NOT EXISTS alone is not safe in a race: it can end in a unique violation in the catalogue. The
-- lock is given back when the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended(?, 0))

-- name: create
-- creates a queue table: the classic one, but bigserial
-- Effect: none where the table is there already. A serial stops at 2,147,483,647 rows in the table's life, which is
-- five days at 5,000 messages a second. Constraints are not named: index names are per schema, and PostgreSQL finds
-- free ones that carry the table's name.
CREATE TABLE IF NOT EXISTS {queue} (
    id uuid PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq bigserial UNIQUE
)

-- name: script_begin
-- how a script that creates one table begins; create or outbox_create follows
-- in: the table's full name, quoted
-- One transaction a table, under the lock of create_lock.
BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended(?, 0));

-- name: script_end
-- how a script that creates one table ends
;
COMMIT;

-- name: length
-- how much stands in a queue
-- out: rows, expired, bytes of headers and bodies, headers of the oldest, the database's clock in UTC
-- The lengths are read from TOAST pointers, so that no large body is fetched. Plain reads wait for nobody here.
SELECT count(*),
       count(*) FILTER (WHERE expires <= statement_timestamp() AT TIME ZONE 'UTC'),
       coalesce(sum(coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0)), 0)::bigint,
       (SELECT headers FROM {queue} ORDER BY seq LIMIT 1),
       statement_timestamp() AT TIME ZONE 'UTC'
FROM {queue}

-- name: peek
-- the first rows of a queue, locking nothing
-- in: how many     out: the eight columns of a message, and whether it is expired
-- Columns the table does not have arrive as NULL, and so does an infinite expiry.
SELECT id::text AS "Id",
       {CorrelationId}::text AS "CorrelationId",
       {ReplyToAddress}::text AS "ReplyToAddress",
       {Recoverable}::boolean AS "Recoverable",
       CASE WHEN isfinite(expires) THEN expires::timestamp END AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion",
       expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired
FROM {queue}
ORDER BY seq
LIMIT ?

-- name: purge
-- deletes the next rows, whatever they are
-- in: after which seq, up to which, how many     out: the seq of each deleted row
-- SKIP LOCKED steps over rows receivers hold: they stay, and nobody waits. MATERIALIZED: the rows are chosen once.
WITH batch AS MATERIALIZED (
    SELECT seq
    FROM {queue}
    WHERE seq > ? AND seq <= ?
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {queue} AS q
USING batch
WHERE q.seq = batch.seq
RETURNING q.seq

-- name: purge_expired
-- deletes the next expired rows
-- in: after which seq, up to which, how many     out: the seq of each deleted row
-- Expired is judged by the database's clock. There is no index on expires: the rows are met in seq order, each only
-- once, because the next batch begins after this one. Else as purge.
WITH batch AS MATERIALIZED (
    SELECT seq
    FROM {queue}
    WHERE seq > ? AND seq <= ? AND expires <= statement_timestamp() AT TIME ZONE 'UTC'
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {queue} AS q
USING batch
WHERE q.seq = batch.seq
RETURNING q.seq
