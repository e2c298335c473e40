-- receive.sql · PostgreSQL · what a receiver says to a queue table

-- name: highest
-- Returns the highest seq that is in the queue now.
-- out: seq; NULL when the queue is empty
SELECT max(seq)::bigint FROM ONLY {queue}

-- shared: row_bytes
-- coalesce refuses two types that no column can have: an owner may make a body text, or headers bytes, under
-- a session that has opened the queue, and the bytes of its messages would be others without an error. Of a
-- varchar coalesce makes a varchar, for which others may have made a function.
octet_length(coalesce(headers, ''::text)::text) + octet_length(coalesce(body, ''::bytea))

-- name: claim
-- Locks the next rows in seq order.
-- out: one row of arrays: seq, expired, bytes, and the seq of the rows that may be messages in transit; NULL
--     where there are none; and whether the name still means the table that was opened
-- SKIP LOCKED steps over rows other receivers hold; FOR UPDATE keeps what is read until the transaction ends.
-- The lengths come from TOAST pointers, so the statement fetches no large body. statement_timestamp() is the
-- database's clock; expires is in UTC. The answer is one row of arrays, because that costs the client a fifth
-- of what as many rows cost. The cast to bigint, here and elsewhere: without it a prepared statement fails
-- when the column is widened from integer. The cast stands outside the subquery, because the index would not
-- serve a sort by the cast value. A partitioned table in the place of that one would look empty.
SELECT pg_catalog.array_agg(seq::bigint), pg_catalog.array_agg(expired), pg_catalog.array_agg(bytes),
       pg_catalog.array_agg(seq::bigint) FILTER (WHERE in_transit),
       to_regclass(:name::text)::oid = :object_id::oid
FROM (
    SELECT seq,
           expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired,
           {row_bytes} AS bytes,
           CASE WHEN {row_bytes} <= {largest_row}
               THEN position('NServiceBus.SqlServer.ForwardDestination' IN headers) > 0 END AS in_transit
    FROM ONLY {queue}
    WHERE seq > :after AND seq <= :up_to
    ORDER BY seq
    LIMIT :count
    FOR UPDATE SKIP LOCKED
) AS locked

-- none: claim_runs · a claim keeps nothing of a row that it has stepped over.
-- none: count_range · a claim keeps nothing of a row that it has stepped over.

-- name: announce
-- Tells the other streams of a queue that this session is a stream's, for as long as the session lives.
-- in: 1 if the stream's workers take rows without a claim, else 0     out: number of the session
-- The number 1936813169 is "sqlq" in ASCII; the next one says that workers take rows. The lock is shared, so
-- no session waits for it.
SELECT pg_backend_pid()
FROM pg_advisory_lock_shared(1936813169 + :workers_take, (:object_id::bigint & 2147483647::bigint)::int)
WHERE current_database() = :database

-- name: first_reader
-- Tells whether this session is the first one that reads a queue for a program. It remains so until it ends.
-- The 2 keeps the lock apart from those of create_lock and stage_hold. The statement waits for nothing.
SELECT pg_try_advisory_lock(pg_catalog.hashtextextended(:name, 2))

-- shared: not_of_streams
-- The rows of a queue that no stream of ours holds, and whether a neighbour holds them.
SELECT q.seq::bigint AS seq, q.xmax = ANY (ARRAY(
        SELECT l.transactionid FROM locks AS l WHERE l.locktype = 'transactionid'
            AND l.pid NOT IN (SELECT s.pid FROM streams AS s)
    )) AS held
    FROM ONLY {queue} AS q
    WHERE q.xmax <> ALL (ARRAY(
        SELECT l.transactionid FROM locks AS l WHERE l.locktype = 'transactionid'
            AND l.pid IN (SELECT s.pid FROM streams AS s)
    ))

-- name: oldest
-- Looks which of the oldest rows are free, and locks nothing.
-- in: after which seq, up to which; above which seq it goes on, over at most how many rows; how many free
--     rows are wanted; the stream's own sessions
-- out: free rows of the first range, rows that a neighbour holds, first seq, last seq, free rows, rows of the
--     second range, sessions of other streams, sessions of neighbours that look for a row
-- The statement is a plain read. A row that a transaction has deleted or locked names this transaction in
-- xmax; while the transaction runs, it holds a lock on its own number, and pg_locks tells its session. A
-- session that also holds the queue's advisory lock (announce) is a stream's. Rows of streams are left out,
-- in a filter and not in a join, so that the index gives the rows in order and the look ends early. It goes
-- over more rows than wanted, because neighbours hold some. Who looks for a row with FOR UPDATE holds a lock
-- on the table in the mode ROW SHARE, which no sender and no plain read takes. A stream's workers that take
-- rows look for them and hold them in sessions of their own. Where there are any, the answer is that no
-- neighbour looks for a row or holds one.
WITH locks AS MATERIALIZED (
    SELECT l.locktype, l.transactionid, l.classid, l.pid
    FROM pg_catalog.pg_locks AS l
    WHERE l.granted AND (
        (l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock')
        OR (l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = :database) AND (
            (l.locktype = 'relation' AND l.mode = 'RowShareLock' AND l.relation = :object_id::oid)
            OR (l.locktype = 'advisory' AND l.classid::bigint IN (1936813169, 1936813170)
                AND l.objid = (:object_id::bigint & 2147483647::bigint)::oid
                AND l.objsubid = 2)
        ))
    )
), streams AS MATERIALIZED (
    SELECT DISTINCT l.pid FROM locks AS l WHERE l.locktype = 'advisory'
), before AS MATERIALIZED (
    {not_of_streams} AND q.seq > :after AND q.seq <= :left_to
    ORDER BY q.seq
), onward AS MATERIALIZED (
    {not_of_streams} AND q.seq > :onward
    ORDER BY q.seq
    LIMIT :most
), seen AS MATERIALIZED (
    SELECT r.seq, r.held, count(*) FILTER (WHERE NOT r.held) OVER (ORDER BY r.seq) AS nth
    FROM (SELECT b.seq, b.held FROM before AS b UNION ALL SELECT o.seq, o.held FROM onward AS o) AS r
)
SELECT (SELECT count(*) FROM before AS b WHERE NOT b.held),
       count(*) FILTER (WHERE s.held
           AND NOT EXISTS (SELECT FROM locks AS w WHERE w.classid::bigint = 1936813170)),
       min(s.seq),
       max(s.seq) FILTER (WHERE s.nth <= :count),
       count(*) FILTER (WHERE NOT s.held AND s.nth <= :count),
       (SELECT count(*) FROM onward),
       (SELECT count(*) FROM streams AS s WHERE s.pid <> ALL (:own::int[])),
       (SELECT pg_catalog.count(DISTINCT l.pid) FROM locks AS l WHERE l.locktype = 'relation'
           AND l.pid NOT IN (SELECT s.pid FROM streams AS s)
           AND NOT EXISTS (SELECT FROM locks AS w WHERE w.classid::bigint = 1936813170))
FROM seen AS s

-- name: clean_indexes
-- Removes the index entries of rows that are deleted for good.
-- The statement takes a lock that stops neither senders nor receivers (SHARE UPDATE EXCLUSIVE). SKIP_LOCKED:
-- where another session cleans already, or alters the table, it does nothing. TRUNCATE off: to shorten the
-- file it would want the table for itself. INDEX_CLEANUP on: else it leaves the indexes alone where few pages
-- have deleted rows. A login without the right gets a warning, and nothing is done. The names of the options
-- are in upper case since version 12.
VACUUM (TRUNCATE FALSE, INDEX_CLEANUP ON, SKIP_LOCKED) {queue}

-- name: look
-- Returns the next rows in seq order, and locks nothing.
-- out: one row: seq, false, bytes and the rest as in claim
-- This is for workers that take rows without a claim. The statement also returns rows that others hold; the
-- statement take steps over them later. Only take judges which rows have expired. Arrays as in claim.
SELECT pg_catalog.array_agg(seq::bigint), pg_catalog.array_agg(false), pg_catalog.array_agg(bytes),
       pg_catalog.array_agg(seq::bigint) FILTER (WHERE in_transit),
       to_regclass(:name::text)::oid = :object_id::oid
FROM (
    SELECT seq,
           {row_bytes} AS bytes,
           CASE WHEN {row_bytes} <= {largest_row}
               THEN position('NServiceBus.SqlServer.ForwardDestination' IN headers) > 0 END AS in_transit
    FROM ONLY {queue}
    WHERE seq > :after AND seq <= :up_to
    ORDER BY seq
    LIMIT :count
) AS seen

-- shared: message
-- The columns of a message behind its id. The tables have no optional columns here; the client adds these, as
-- NULL. A driver that writes its largest date for "never" writes infinity. No reader of Arrow has a number
-- for that, and Python has none for a year beyond 9999, so they arrive as NULL.
CASE WHEN expires BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
           THEN expires::timestamp END AS "Expires",
       headers::text AS "Headers",
       body AS "Body",
       seq::bigint AS "RowVersion"

-- name: read
-- Reads the rows of a range, and locks nothing.
-- The claim's locks do not hide rows from plain reads. Between others may stand a row that no client can
-- read. Its size is known without reading it.
SELECT id::text AS "Id", {message}
FROM ONLY {queue}
WHERE seq BETWEEN :first AND :last
  AND {row_bytes} <= {largest_row}
ORDER BY seq

-- name: read_unexpired
-- Reads the rows of a range that have not expired, and locks nothing.
-- It reads as read does, and serves a look at a queue that claims nothing.
SELECT id::text AS "Id", {message}
FROM ONLY {queue}
WHERE seq BETWEEN :first AND :last AND (expires IS NULL OR expires > statement_timestamp() AT TIME ZONE 'UTC')
  AND {row_bytes} <= {largest_row}
ORDER BY seq

-- none: read_versions · read reads row versions.

-- name: take
-- Deletes the rows of a range and returns them.
-- out: the columns of a message, and whether it has expired; the rows come in any order
-- SKIP LOCKED steps over rows that others hold: they stay, and no session waits. The delete finds its rows by
-- ctid, which cannot change while the rows are locked. Joined by seq, the server would seek each row in the
-- index once more, which takes half as long again. The statement deletes at most as many rows as were
-- planned, because other rows may have appeared in the range since. Messages in transit stay, but for those
-- that the plan has counted among the others.
DELETE FROM ONLY {queue}
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM ONLY {queue}
    WHERE seq BETWEEN :first AND :last
      AND {row_bytes} <= {largest_row}
      AND (coalesce(position('NServiceBus.SqlServer.ForwardDestination' IN headers), 0) = 0
          OR seq IN ({in_transit}))
    ORDER BY seq
    LIMIT :count
    FOR UPDATE SKIP LOCKED
))
RETURNING id::text AS "Id", {message},
          expires IS NOT NULL AND expires <= statement_timestamp() AT TIME ZONE 'UTC' AS expired

-- name: ids
-- Returns the row ids of some rows, to prove that a claim still has the same rows.
-- out: seq, id; the rows come in any order
-- OFFSET 0 makes the server look up each run by itself; for a plain join the planner may walk the whole
-- table.
SELECT q.seq::bigint, q.id::text
FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS run (first, last)
CROSS JOIN LATERAL (SELECT seq, id FROM ONLY {queue} WHERE seq BETWEEN run.first AND run.last OFFSET 0) AS q

-- name: headers_of
-- Reads the headers of some rows, and locks nothing.
-- out: seq, id, headers; the rows come in any order
-- OFFSET 0 as in ids.
SELECT q.seq::bigint, q.id::text, q.headers::text
FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS run (first, last) CROSS JOIN LATERAL
    (SELECT seq, id, headers FROM ONLY {queue} WHERE seq BETWEEN run.first AND run.last OFFSET 0) AS q

-- name: lock_in_transit
-- Locks those of some rows that are free, and reads them whole.
-- out: seq, id, correlation id, reply-to address, time of expiry, headers, body; the rows come in any order
-- SKIP LOCKED steps over rows that others hold. The tables have no optional columns here. Expires as in
-- message; what has expired before the first year stays expired. coalesce as in row_bytes.
SELECT q.seq::bigint, q.id::text, NULL::text, NULL::text,
    CASE WHEN q.expires <= '9999-12-31 23:59:59.999999'
        THEN greatest(q.expires::timestamp, '0001-01-01') END,
    coalesce(q.headers, NULL::text)::text, coalesce(q.body, NULL::bytea)
FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS run (first, last)
CROSS JOIN LATERAL (
    SELECT seq, id, expires, headers, body
    FROM ONLY {queue}
    WHERE seq BETWEEN run.first AND run.last
    ORDER BY seq
    FOR UPDATE SKIP LOCKED
) AS q

-- name: lock
-- Locks again what is left of a claim, and waits for rows that others hold.
-- out: seq, bytes
-- No SKIP LOCKED: if the statement stepped over a row that another transaction holds and then rolls back, the
-- row would later be deleted unprocessed. LATERAL makes the server look up each run in the index; for a plain
-- join the planner may walk the whole table.
SELECT q.seq::bigint, q.bytes
FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS run (first, last)
CROSS JOIN LATERAL (
    SELECT seq, {row_bytes} AS bytes
    FROM ONLY {queue}
    WHERE seq BETWEEN run.first AND run.last
    ORDER BY seq
    FOR UPDATE
) AS q

-- name: holders
-- Returns who holds locks on rows of a range.
SELECT DISTINCT a.pid, a.usename::text, coalesce(host(a.client_addr), 'local socket'), a.application_name
FROM ONLY {queue} AS q
JOIN pg_catalog.pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = q.xmax
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid AND a.pid <> pg_backend_pid()
WHERE q.tableoid = :object_id::oid AND q.seq BETWEEN :first AND :last AND current_database() = :database

-- name: delete
-- Deletes a claim that this transaction has locked.
-- A run holds consecutive numbers that were all claimed, so no other row can stand between its ends. The
-- delete finds its rows by ctid, which cannot change while the rows are locked; for a plain join the planner
-- may walk the whole table.
DELETE FROM ONLY {queue}
WHERE ctid = ANY (ARRAY(
    SELECT q.ctid
    FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS run (first, last)
    CROSS JOIN LATERAL (SELECT ctid FROM ONLY {queue} WHERE seq BETWEEN run.first AND run.last OFFSET 0) AS q
))

-- name: delete_range
-- Deletes one run of a claim that this transaction has locked.
-- It does what delete does, twice as fast, for the usual claim, which is a single run.
DELETE FROM ONLY {queue}
WHERE seq BETWEEN :first AND :last

-- name: waiting
-- Returns what waits behind a row, by two probes of the index.
-- out: the first seq that waits, the highest, headers of the oldest, the database's clock in UTC
-- The caller counts from the first number to the highest. This is the most that can wait, because it also
-- counts numbers of rows that were taken out of order; an exact count would read the whole backlog. The
-- statement does not count: the two numbers can be further apart than a bigint can say. Headers of more than
-- a million bytes stay unread, because the row may stand there for long.
SELECT q.seq::bigint, (SELECT max(seq)::bigint FROM ONLY {queue}),
    CASE WHEN octet_length(q.headers::text) <= 1000000 THEN q.headers::text END,
    statement_timestamp() AT TIME ZONE 'UTC'
FROM ONLY {queue} AS q
WHERE q.seq > :after
ORDER BY q.seq
LIMIT 1
