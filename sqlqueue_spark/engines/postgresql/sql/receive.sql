-- receive.sql · PostgreSQL · what a receiver says to a queue table

-- name: ends
-- the lowest and the highest seq that are there now
-- out: both, or NULL twice
-- One statement, so both are of one moment: rows that are sent in between stand above what is looked at, and no old one
-- is left out for them. Two probes of the index.
SELECT min(seq)::bigint, max(seq)::bigint FROM {queue}

-- name: highest
-- the highest seq that is there now
-- out: seq or NULL
SELECT max(seq)::bigint FROM {queue}

-- name: claim
-- locks the next rows in seq order
-- in: after which seq, up to which, how many     out: one row of arrays: seq, expired, bytes
-- SKIP LOCKED steps over rows other receivers hold. The lengths are read from TOAST pointers, so that a
-- large body is not fetched here. statement_timestamp() is the database's clock; expires is in UTC. As arrays the
-- answer costs the client a fifth of what as many rows cost. As bigint, here and elsewhere, because a prepared statement
-- fails when the column is widened from integer under it; outside, because the cast would not sort by the index.
SELECT array_agg(seq::bigint), array_agg(expired), array_agg(bytes)
FROM (
    SELECT seq,
           expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired,
           coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM {queue}
    WHERE seq > ? AND seq <= ?
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
) AS locked

-- name: look
-- the next rows in seq order, locking nothing
-- in: after which seq, up to which, how many     out: one row of arrays: seq, false, bytes
-- For workers that take rows without a claim. Rows that others hold are seen too, and stepped over when they are taken;
-- only then is judged what has expired. As arrays the answer costs the client a fifth of what as many rows cost.
SELECT array_agg(seq::bigint), array_agg(false), array_agg(bytes)
FROM (
    SELECT seq, coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM {queue}
    WHERE seq > ? AND seq <= ?
    ORDER BY seq
    LIMIT ?
) AS seen

-- name: read
-- reads the rows of a range, locking nothing
-- in: first seq, last seq     out: the columns of a message
-- The claim's locks do not hide rows from plain reads. The tables have no optional columns here; the
-- client adds them, as NULL.
-- A driver that takes its largest date for "never" writes infinity, which no reader of Arrow has a number for.
SELECT id::text AS "Id",
       nullif(expires::timestamp, 'infinity') AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion"
FROM {queue}
WHERE seq BETWEEN ? AND ?
ORDER BY seq

-- name: read_unexpired
-- reads the rows of a range that have not expired, locking nothing
-- in: first seq, last seq     out: the columns of a message
-- As read, for a look at a queue that claims nothing.
SELECT id::text AS "Id",
       nullif(expires::timestamp, 'infinity') AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion"
FROM {queue}
WHERE seq BETWEEN ? AND ? AND (expires IS NULL OR expires > statement_timestamp() AT TIME ZONE 'UTC')
ORDER BY seq

-- name: take
-- deletes the rows of a range and returns them
-- in: first seq, last seq, how many     out: the columns of a message, and whether it is expired, in any order
-- SKIP LOCKED steps over rows that others hold: they stay, and nobody waits. By ctid, which cannot change while the rows
-- are locked: joined by seq, each row is sought in the index once more, which takes half as long again. At most as many
-- as were planned, for others may have come up in between. Columns as in read.
DELETE FROM {queue}
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM {queue}
    WHERE seq BETWEEN ? AND ?
    ORDER BY seq
    LIMIT ?
    FOR UPDATE SKIP LOCKED
))
RETURNING id::text AS "Id",
          nullif(expires::timestamp, 'infinity') AS "Expires",
          headers::text AS "Headers",
          body AS "Body",
          seq::bigint AS "RowVersion",
          expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired

-- name: ids
-- the row ids of some rows, to prove that a claim is still the same rows
-- in: the first and the last seq of each run     out: seq, id
-- OFFSET 0 keeps the look-up of each run apart: as a plain join the planner may walk the whole table instead.
SELECT q.seq::bigint, q.id::text
FROM unnest(?::bigint[], ?::bigint[]) AS run (first, last)
CROSS JOIN LATERAL (SELECT seq, id FROM {queue} WHERE seq BETWEEN run.first AND run.last OFFSET 0) AS q

-- name: lock
-- locks again what is left of a claim, waiting for rows that others hold
-- in: the first and the last seq of each run     out: seq, bytes
-- No SKIP LOCKED: a row left out here and rolled back there would later be deleted unprocessed. LATERAL: each
-- run is looked up in the index; as a plain join the planner may walk the whole table instead.
SELECT q.seq::bigint, q.bytes
FROM unnest(?::bigint[], ?::bigint[]) WITH ORDINALITY AS run (first, last, position)
CROSS JOIN LATERAL (
    SELECT seq, coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) AS bytes
    FROM {queue}
    WHERE seq BETWEEN run.first AND run.last
    ORDER BY seq
    FOR UPDATE
) AS q
ORDER BY run.position, q.seq

-- name: holders
-- who holds rows of a range
-- in: object id of the table, first seq, last seq, database     out: session, login, host, program
SELECT DISTINCT a.pid, a.usename::text, coalesce(host(a.client_addr), 'local socket'), a.application_name
FROM {queue} AS q
JOIN pg_catalog.pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = q.xmax
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid AND a.pid <> pg_backend_pid()
WHERE q.tableoid = ?::oid AND q.seq BETWEEN ? AND ? AND current_database() = ?

-- name: delete
-- deletes a claim that this transaction has locked
-- in: the first and the last seq of each run     out: number of rows
-- A run holds consecutive numbers that were all claimed, so nothing else can stand between its ends. By ctid,
-- which cannot change while the rows are locked: as a plain join the planner may walk the whole table instead.
DELETE FROM {queue}
WHERE ctid = ANY (ARRAY(
    SELECT q.ctid
    FROM unnest(?::bigint[], ?::bigint[]) AS run (first, last)
    CROSS JOIN LATERAL (SELECT ctid FROM {queue} WHERE seq BETWEEN run.first AND run.last OFFSET 0) AS q
))

-- name: delete_range
-- deletes one run of a claim that this transaction has locked
-- in: first seq, last seq     out: number of rows
-- As delete for the usual claim, which is one run: twice as fast.
DELETE FROM {queue}
WHERE seq BETWEEN ? AND ?

-- name: waiting
-- what waits behind a row: two index probes
-- in: after which seq     out: the first seq that waits, the highest, headers of the oldest, the database's clock in UTC
-- The caller counts from one to the other: the number of rows at most, for those that were taken out of order are counted
-- too; an exact count would read the whole backlog. Not here: the two can be further apart than a bigint can say.
SELECT q.seq::bigint, (SELECT max(seq)::bigint FROM {queue}), q.headers::text, statement_timestamp() AT TIME ZONE 'UTC'
FROM {queue} AS q
WHERE q.seq > ?
ORDER BY q.seq
LIMIT 1
