-- send.sql · PostgreSQL · what a sender says to a queue table

-- name: isolation_read_committed
-- Isolates the transactions of a connection: a statement sees what was committed when it began.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: isolation_repeatable_read
-- Isolates the transactions of a connection: what a transaction has read stays as it was.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: isolation_serializable
-- Isolates the transactions of a connection: they act as if one ran after the other.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE

-- name: isolation_snapshot
-- Isolates the transactions of a connection: a transaction sees what was committed when it began.
-- PostgreSQL calls this REPEATABLE READ, which is a snapshot here.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: insert
-- Sends messages.
-- in: COPY's binary stream of Ids, times of expiry, headers, bodies     out: number of rows
-- The sender needs INSERT on the table and USAGE on its sequence, but not SELECT. Rows get their seq in the
-- order of the stream. COPY is nearly twice as fast as INSERT … SELECT FROM unnest(…). The tables have no
-- optional columns here.
COPY {queue} (id, expires, headers, body) FROM STDIN (FORMAT binary)
