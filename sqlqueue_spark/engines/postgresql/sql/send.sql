-- send.sql · PostgreSQL · what a sender says to a queue table

-- name: isolation
-- Isolates the transactions of a connection.
-- in: the level, written into the text
-- PostgreSQL calls SNAPSHOT a REPEATABLE READ, which is a snapshot here.
SELECT set_config('default_transaction_isolation',
    replace(lower(':level'), 'snapshot', 'repeatable read'), false)

-- name: insert
-- Sends messages to a queue, or stores them in a table of delayed messages.
-- in: COPY's binary stream of Ids, times of expiry or delivery, headers, bodies     out: number of rows
-- {time} is the column expires, or due. A timestamp and a timestamptz are the same bytes: the first in no
-- time zone, the second in UTC. The sender needs INSERT on the table and USAGE on its sequence, but not
-- SELECT. Rows get their seq in the order of the stream. COPY is nearly twice as fast as INSERT … SELECT FROM
-- unnest(…). The tables have no optional columns here.
COPY {queue} (id, {time}, headers, body) FROM STDIN (FORMAT binary)

-- name: row_security
-- Returns whether policies decide which rows this login may insert into the table of a full name, quoted.
SELECT row_security_active(:name::text)

-- name: insert_by_policy
-- Does so where row security is active.
-- in: arrays of Ids, times of expiry or delivery, headers, bodies     out: number of rows
-- The server refuses COPY there. Columns and values as in stage_move.
INSERT INTO {queue} ({columns})
SELECT {values}
FROM unnest(:ids::uuid[], :expires::timestamp[], :headers::text[], :bodies::bytea[]) WITH ORDINALITY
    AS m (id, expires, headers, body, number)
ORDER BY number
