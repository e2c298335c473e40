-- delayed.sql · PostgreSQL · tables of messages that wait until they are due

-- name: delayed_create
-- Creates a table of delayed messages as the .NET transport makes it.
CREATE TABLE IF NOT EXISTS {delayed} (
    id uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid() PRIMARY KEY,
    headers text NOT NULL,
    body bytea,
    due timestamptz NOT NULL
)

-- name: delayed_index
-- Creates the index that finds what is due.
CREATE INDEX IF NOT EXISTS {index} ON {delayed} (due)

-- name: delayed_zone
-- Returns the time zone by which the delayed tables of this database tell times.
-- A .NET endpoint stores and compares now() AT TIME ZONE 'UTC': the wall clock of UTC, read in the time zone
-- of its session. So what is stored is no instant, and who shares the table must read the same zone: the
-- database's default, whatever this login or this session says. Where the database has none of its own, the
-- session's default is the best that a login may read. A setting may be a number of hours or an interval.
-- AT TIME ZONE knows no interval, and reads a number's sign the other way. So the session takes the setting
-- for a moment, and then has a name for it.
SELECT z.name, set_config('TimeZone', 'UTC', true)
FROM (
    SELECT set_config('TimeZone', coalesce(
        (
            SELECT split_part(s.setting, '=', 2)
            FROM pg_catalog.pg_db_role_setting AS r
            JOIN pg_catalog.pg_database AS d ON d.oid = r.setdatabase
            CROSS JOIN pg_catalog.unnest(r.setconfig) AS s (setting)
            WHERE d.datname = current_database() AND r.setrole = 0::oid AND lower(s.setting) LIKE 'timezone=%'
        ),
        (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone')
    )::text, true) AS name
) AS z

-- name: delayed_stored
-- Returns times as delayed tables store them.
-- in: times, in UTC     out: number, the instant that is stored, in UTC
SELECT w.number, w.due AT TIME ZONE :zone AT TIME ZONE 'UTC'
FROM pg_catalog.unnest(:dues::timestamp[]) WITH ORDINALITY AS w (due, number)

-- name: delayed_next
-- Returns how long it takes until the first message is due.
-- out: seconds, negative where it is overdue; NULL when the table is empty
-- One probe of the index on due, however many messages wait. PostgreSQL 16 cannot subtract from infinity.
SELECT extract(epoch FROM min(due::timestamptz))::double precision
    - extract(epoch FROM (statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE :zone)::double precision
FROM ONLY {delayed}

-- shared: due_row
SELECT d.ctid::text, greatest(w.place - 1, 0), substr(d.headers::text, w.place), d.due::timestamptz::text,
    d.id::text
FROM ONLY {delayed} AS d
CROSS JOIN LATERAL (
    SELECT strpos(d.headers::text, ',"NServiceBus.SqlServer.ForwardDestination":') AS place
) AS w
WHERE d.due::timestamptz <= (statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE :zone

-- name: delayed_due
-- Locks the next messages that are due, in the order in which they are due.
-- out: which row, how many characters of its headers stand before the one that says where it goes, the rest
--     of them, due, its id
-- SKIP LOCKED steps over rows that another mover holds, and no session waits. Bodies stay where they are, and
-- so does the beginning of the headers: the header in question stands at their end, where the transport
-- writes it. Where it stands in another form, nothing stands before it and the rest is all.
{due_row}
ORDER BY d.due
LIMIT :count
FOR UPDATE OF d SKIP LOCKED

-- name: delayed_due_behind
-- As delayed_due, behind a message, in the order of due and place.
-- in: its due, and its row, or '' for all of that due     out: as delayed_due
-- The server sorts all of one due, which may be all that is due. So delayed_due has no order of them, and
-- here no headers are sorted. The array of ctids makes it a TID scan whatever the statistics say: a join
-- might read the whole table.
{due_row}
  AND d.ctid = ANY (ARRAY(
      SELECT n.ctid
      FROM ONLY {delayed} AS n
      WHERE n.due::timestamptz <= (statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE :zone
        AND (n.due::timestamptz, n.ctid)
            > (:since::text::timestamptz, coalesce(nullif(:after::text, ''), '(0,0)')::tid)
      ORDER BY n.due, n.ctid
      LIMIT :count
      FOR UPDATE OF n SKIP LOCKED
  ))
ORDER BY d.due, d.ctid

-- name: delayed_headers
-- Returns the headers of messages that delayed_due has locked.
SELECT ctid::text, id::text, coalesce(headers, NULL::text)::text
FROM ONLY {delayed}
WHERE ctid = ANY (:rows::tid[])

-- name: delayed_send
-- Moves messages that delayed_due has locked to their queue, in the order in which they are given.
-- in: which rows, their new Ids, how many characters of their headers they keep, what they have behind these
-- out: number of rows that left the table, number of rows that went into the queue
-- A row is found by its ctid, which cannot change while it is locked. A NULL body becomes an empty one: a
-- NULL stops a .NET endpoint. Each coalesce refuses other types, as in row_bytes. RETURNING 1 reads no
-- column, so that no right to read the queue is needed.
WITH moved AS (
    DELETE FROM ONLY {delayed} AS d
    USING unnest(:rows::tid[], :ids::uuid[], :kept::int[], :rests::text[]) WITH ORDINALITY
        AS m (place, new_id, kept, rest, number)
    WHERE d.ctid = m.place
    RETURNING m.number, m.new_id, d.body,
        left(coalesce(d.headers, NULL::text)::text, m.kept) || m.rest AS headers
), sent AS (
    INSERT INTO {queue} (id, headers, body)
    SELECT new_id, headers, coalesce(body, ''::bytea)
    FROM moved
    ORDER BY number
    RETURNING 1
)
SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM sent)

-- name: delayed_length
-- Returns how much waits in a table of delayed messages: for each end of the headers of messages that wait
-- for a database, and for all others.
-- out: the end, NULL of all others; rows, how many are due, seconds until the first is due, NULL for never
-- It reads the whole table, once for each start of a job. PostgreSQL 16 cannot subtract from infinity.
SELECT CASE WHEN w.place > 0 THEN substr(d.headers::text, w.place) END,
       count(*),
       count(*) FILTER (WHERE d.due <= (statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE :zone),
       CASE WHEN isfinite(min(d.due)) THEN extract(epoch
           FROM min(d.due) - (statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE :zone)::double precision
       END
FROM ONLY {delayed} AS d
CROSS JOIN LATERAL (SELECT strpos(d.headers::text, :ending) AS place) AS w
GROUP BY 1

-- name: delayed_waiting
-- Locks the next messages that wait for a database, in the order in which they are given up.
-- in: how the last of their headers begin; the due of the last one so far, an early time at first
-- out: which row, how many characters of its headers stand before that end, due, its id
-- It walks the index on due and looks at each row's headers, once for each time that the database comes back.
-- Due comes in UTC, as the next look gets it back; of one that no driver has a word for, as the last that it
-- has. SKIP LOCKED as in delayed_due.
SELECT d.ctid::text, w.place - 1, least(d.due AT TIME ZONE 'UTC', '9999-12-31 23:59:59.999999'), d.id::text
FROM ONLY {delayed} AS d
CROSS JOIN LATERAL (SELECT strpos(d.headers::text, :ending) AS place) AS w
WHERE d.due >= :since::timestamp AT TIME ZONE 'UTC' AND w.place > 0
ORDER BY d.due
LIMIT :count
FOR UPDATE OF d SKIP LOCKED
