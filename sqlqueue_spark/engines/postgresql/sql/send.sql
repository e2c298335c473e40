-- send.sql · PostgreSQL · what a sender says to a queue table

-- name: isolation
-- Isolates the transactions of a connection.
-- in: the level, written into the text
-- PostgreSQL calls SNAPSHOT a REPEATABLE READ, which is a snapshot here.
SELECT set_config('default_transaction_isolation',
    replace(lower(':level'), 'snapshot', 'repeatable read'), false)

-- name: insert
-- Sends messages.
-- in: COPY's binary stream of Ids, times of expiry, headers, bodies     out: number of rows
-- The sender needs INSERT on the table and USAGE on its sequence, but not SELECT. Rows get their seq in the
-- order of the stream. COPY is nearly twice as fast as INSERT … SELECT FROM unnest(…). The tables have no
-- optional columns here.
COPY {queue} (id, expires, headers, body) FROM STDIN (FORMAT binary)

-- name: insert_by_policy
-- Sends messages to a queue, or stores them in a table of delayed messages, where row security is active.
-- in: arrays of Ids, times of expiry or delivery, headers, bodies     out: number of rows
-- The server refuses COPY there. Columns and values as in stage_move.
INSERT INTO {queue} ({columns})
SELECT {values}
FROM unnest(:ids::uuid[], :expires::timestamp[], :headers::text[], :bodies::bytea[]) WITH ORDINALITY
    AS m (id, expires, headers, body, number)
ORDER BY number
