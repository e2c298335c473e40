-- stage.sql · PostgreSQL · the stage of an atomic pipeline

-- name: stage_create
-- Creates the table in which an atomic pipeline puts what it sends, until the batch is settled. A row holds a
-- task's messages for one destination, as many as go out in one transaction, column by column. To write
-- messages so and to take them apart again costs half of what a row for each message costs. One row, the
-- mark, has no task. It says which claim the stage belongs to and whose rows count. The primary key: in a
-- database that publishes all its tables no row without one can be changed. Stages of earlier versions have
-- none.
CREATE TABLE IF NOT EXISTS {stage} (
    task text NOT NULL,
    destination text NOT NULL,
    ids uuid[],
    expires timestamp[],
    headers text[],
    bodies bytea[],
    mark text,
    seq bigserial PRIMARY KEY
)

-- name: stage_storage
-- Stores the messages of a stage as they are.
-- Otherwise the server compresses a large value. That costs more than writing it, and these values live for
-- one batch only.
ALTER TABLE {stage}
    ALTER COLUMN ids SET STORAGE EXTERNAL,
    ALTER COLUMN expires SET STORAGE EXTERNAL,
    ALTER COLUMN headers SET STORAGE EXTERNAL,
    ALTER COLUMN bodies SET STORAGE EXTERNAL

-- name: stage_index
-- Creates the index that finds the mark of a stage without a scan; it holds no other row.
CREATE UNIQUE INDEX IF NOT EXISTS {mark} ON {stage} (task) WHERE task OPERATOR(pg_catalog.=) ''

-- name: stage_hold
-- Takes a stage for a source, for as long as the session lives.
-- The lock belongs to the session, not to the transaction: a sink wants to know that a source lives also
-- while it holds no batch. The statement waits for lock_timeout, because the session of a process that has
-- just died may not have ended yet. The 1 keeps the lock apart from that of create_lock.
SELECT pg_advisory_lock(pg_catalog.hashtextextended(:name, 1))

-- name: stage_held
-- Returns which other sessions hold a stage.
-- pg_locks shows the number that stage_hold takes in two halves
-- (https://www.postgresql.org/docs/current/view-pg-locks.html).
SELECT l.pid
FROM pg_catalog.pg_locks AS l
CROSS JOIN (SELECT pg_catalog.hashtextextended(:name, 1) AS number) AS k
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
  AND l.classid::bigint = ((k.number >> 32) & 4294967295) AND l.objid::bigint = (k.number & 4294967295)
  AND l.pid <> pg_backend_pid()

-- name: stage_mark
-- Returns the mark of a stage, and locks it.
-- out: the mark, as JSON; no row when the stage was never opened
-- FOR UPDATE makes two sinks of one batch add to the mark one after the other.
SELECT mark FROM {stage} WHERE task = '' FOR UPDATE

-- name: stage_open
-- Gives a stage its first mark.
INSERT INTO {stage} (task, destination, mark) VALUES ('', '', :mark)

-- name: stage_seal
-- Replaces the mark of a stage, which says whose it is and which rows count.
UPDATE {stage} SET mark = :mark WHERE task = ''

-- name: stage_last
-- Returns the number of the last row on a stage.
-- out: the last seq or NULL
-- Where the stage of an earlier version has no key, the statement scans the table; but a row holds thousands
-- of messages, and the scan reads none of them.
SELECT max(seq) FROM {stage}

-- name: stage_insert
-- Puts messages on the stage.
-- in: COPY's binary stream of rows: task, destination, and arrays of Ids, times of expiry, headers, bodies
COPY {stage} (task, destination, ids, expires, headers, bodies) FROM STDIN (FORMAT binary)

-- name: stage_count
-- Returns how many messages tasks have on a stage for each destination.
SELECT task, destination, sum(pg_catalog.cardinality(ids))::bigint
FROM {stage}
WHERE task = ANY (:tasks::text[]) AND seq > :after
GROUP BY task, destination

-- name: stage_next
-- Returns how far the next messages of a destination reach on a stage.
-- in: how many, at least as many as a row holds     out: the last seq or NULL
SELECT max(seq)
FROM (
    SELECT seq, sum(pg_catalog.cardinality(ids)) OVER (ORDER BY seq) AS messages
    FROM {stage}
    WHERE destination = :destination AND task = ANY (:tasks::text[]) AND seq > :after
) AS next
WHERE messages <= :count

-- shared: unnested
-- The server takes the arrays of a row apart side by side, in their order. It does so above the sort, so the
-- sort sees a few rows and no message (https://www.postgresql.org/docs/current/xfunc-sql.html, "SQL Functions
-- Returning Sets").
(
    SELECT pg_catalog.unnest(ids) AS id,
           pg_catalog.unnest(expires) AS expires,
           pg_catalog.unnest(headers) AS headers,
           pg_catalog.unnest(bodies) AS body
    FROM (
        SELECT ids, expires, headers, bodies
        FROM {stage}
        WHERE destination = :destination AND task = ANY (:tasks::text[]) AND seq > :after AND seq <= :up_to
        ORDER BY seq
    ) AS parts
) AS messages

-- name: stage_move
-- Sends staged messages to their destination, in the order of the stage.
-- It sends only rows of tasks that Spark has accepted: a twin, or a task of an attempt that failed, may have
-- left other rows. {columns} are those of the destination, and {values} what they get: the columns of the
-- same names, but the time of expiry where a table of delayed messages has due.
INSERT INTO {queue} ({columns})
SELECT {values}
FROM {unnested}

-- name: stage_rows
-- Returns staged messages of a destination, which go to an error queue instead.
SELECT id::text, headers, body
FROM {unnested}

-- name: stage_try
-- Sends one staged message to its destination, for the caller to roll back.
-- So we find before the batch is done what a destination refuses: a missing right, a column that must be
-- filled, a trigger.
INSERT INTO {queue} ({columns})
SELECT {values}
FROM (
    SELECT ids[1] AS id, expires[1] AS expires, headers[1] AS headers, bodies[1] AS body
    FROM {stage}
    WHERE destination = :destination AND task = ANY (:tasks::text[])
    ORDER BY seq
    LIMIT 1
) AS message

-- name: stage_clear
-- Empties a stage.
-- TRUNCATE leaves no dead rows; a DELETE would leave those of every batch. It waits for every session that
-- has the table open, even only to read. So we run it where nothing depends on it, and under a lock_timeout
-- that keeps it from waiting.
TRUNCATE {stage}
