-- send.sql · PostgreSQL · what a sender says to a queue table

-- name: isolation_read_committed
-- isolates the transactions of a connection: a statement sees what was committed when it began
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: isolation_repeatable_read
-- isolates the transactions of a connection: what was read stays as it was
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: isolation_serializable
-- isolates the transactions of a connection: as if one transaction ran after the other
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE

-- name: isolation_snapshot
-- isolates the transactions of a connection: a transaction sees what was committed when it began
-- Called REPEATABLE READ here, which is a snapshot.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: insert
-- sends messages
-- in: COPY's binary stream of Ids, times of expiry, headers, bodies     out: number of rows
-- Needs INSERT on the table and USAGE on its sequence, not SELECT. Rows get their seq in the order of the stream. Nearly
-- twice as fast as INSERT … SELECT FROM unnest(…). The tables have no optional columns here.
COPY {queue} (id, expires, headers, body) FROM STDIN (FORMAT binary)
