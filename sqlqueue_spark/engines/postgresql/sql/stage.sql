-- stage.sql · PostgreSQL · the stage of an atomic pipeline

-- name: stage_create
-- creates the table in which an atomic pipeline puts what it sends, until the batch is settled
-- Effect: none where the table is there already. A row holds a task's messages for one destination, as many as go out in one
-- transaction, column by column: to write them so and to take them apart again costs half of what as many rows cost. One
-- row, the mark, has no task: it says which claim the stage belongs to and whose rows count.
CREATE TABLE IF NOT EXISTS {stage} (
    task text NOT NULL,
    destination text NOT NULL,
    ids uuid[],
    expires timestamp[],
    headers text[],
    bodies bytea[],
    mark text,
    seq bigserial NOT NULL
)

-- name: stage_storage
-- stores the messages of a stage as they are
-- A large value is compressed otherwise, which costs more than writing it, and these live for one batch.
ALTER TABLE {stage}
    ALTER COLUMN ids SET STORAGE EXTERNAL,
    ALTER COLUMN expires SET STORAGE EXTERNAL,
    ALTER COLUMN headers SET STORAGE EXTERNAL,
    ALTER COLUMN bodies SET STORAGE EXTERNAL

-- name: stage_index
-- finds the mark of a stage without a scan; the other rows are not in it
-- Its name carries the table's, as names of indexes are per schema.
CREATE UNIQUE INDEX IF NOT EXISTS {mark} ON {stage} (task) WHERE task = ''

-- name: stage_hold
-- takes a stage for a source, for as long as the session lives
-- in: the stage's full name, quoted
-- Of the session, not of the transaction: a sink wants to know that a source lives while it holds no batch. It waits for
-- lock_timeout, as the session of a process that has just died may not have ended yet. The 1 keeps it apart from create_lock.
SELECT pg_advisory_lock(hashtextextended(?, 1))

-- name: stage_held
-- which other sessions hold a stage
-- in: the stage's full name, quoted     out: session
-- The number that stage_hold takes stands in two halves (https://www.postgresql.org/docs/current/view-pg-locks.html).
SELECT l.pid
FROM pg_catalog.pg_locks AS l
CROSS JOIN (SELECT hashtextextended(?, 1) AS number) AS k
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
  AND l.classid::bigint = ((k.number >> 32) & 4294967295) AND l.objid::bigint = (k.number & 4294967295)
  AND l.pid <> pg_backend_pid()

-- name: stage_mark
-- the mark of a stage
-- out: the mark, as JSON; no row when nobody has opened the stage
-- Locked, so that two sinks of one batch add to it one after the other.
SELECT mark FROM {stage} WHERE task = '' FOR UPDATE

-- name: stage_open
-- gives a stage its first mark
-- in: the mark, as JSON
INSERT INTO {stage} (task, destination, mark) VALUES ('', '', ?)

-- name: stage_seal
-- replaces the mark of a stage: whose it is, and which rows count
-- in: the mark, as JSON     out: number of rows
UPDATE {stage} SET mark = ? WHERE task = ''

-- name: stage_last
-- the number of the last row on a stage
-- out: the last seq or NULL
-- A scan, but of a row for thousands of messages, and of no message.
SELECT max(seq) FROM {stage}

-- name: stage_insert
-- puts messages on the stage
-- in: COPY's binary stream of rows: task, destination, and arrays of Ids, times of expiry, headers, bodies
-- out: number of rows
COPY {stage} (task, destination, ids, expires, headers, bodies) FROM STDIN (FORMAT binary)

-- name: stage_count
-- how many messages tasks have on a stage
-- in: tasks, after which seq     out: task, messages
SELECT task, sum(cardinality(ids))::bigint
FROM {stage}
WHERE task = ANY (?::text[]) AND seq > ?
GROUP BY task

-- name: stage_next
-- how far the next messages of a destination reach on a stage
-- in: destination, tasks, after which seq, how many, at least as many as a row holds     out: the last seq or NULL
SELECT max(seq)
FROM (
    SELECT seq, sum(cardinality(ids)) OVER (ORDER BY seq) AS messages
    FROM {stage}
    WHERE destination = ? AND task = ANY (?::text[]) AND seq > ?
) AS next
WHERE messages <= ?

-- name: stage_move
-- sends staged messages to their destination, in the order of the stage
-- in: destination, tasks, after which seq, up to which     out: number of messages
-- Only rows of tasks that Spark has accepted: a twin, or a task of an attempt that failed, may have left others.
-- {columns} are those of the destination. The arrays of a row are taken apart side by side, in their order, and above the
-- sort, which so sees a few rows and no message (https://www.postgresql.org/docs/current/xfunc-sql.html, "SQL Functions
-- Returning Sets").
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM (
    SELECT unnest(ids) AS id, unnest(expires) AS expires, unnest(headers) AS headers, unnest(bodies) AS body
    FROM (
        SELECT ids, expires, headers, bodies
        FROM {stage}
        WHERE destination = ? AND task = ANY (?::text[]) AND seq > ? AND seq <= ?
        ORDER BY seq
    ) AS parts
) AS messages

-- name: stage_try
-- sends one staged message to its destination, for the caller to roll back
-- in: destination, tasks     out: number of messages
-- What a destination refuses (a missing right, a column that must be filled, a trigger) is so found before the batch is done.
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM (
    SELECT ids[1] AS id, expires[1] AS expires, headers[1] AS headers, bodies[1] AS body
    FROM {stage}
    WHERE destination = ? AND task = ANY (?::text[])
    ORDER BY seq
    LIMIT 1
) AS message

-- name: stage_clear
-- empties a stage
-- TRUNCATE leaves no dead rows, of which each batch would leave as many as it has messages. It waits for everybody who has
-- the table open, be it for reading: it is run where nothing depends on it and nothing is waited for (lock_timeout).
TRUNCATE {stage}
