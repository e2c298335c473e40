-- insert.sql · PostgreSQL · sends messages
-- in: COPY's binary stream of Ids, times of expiry, headers, bodies     out: number of rows
-- Needs INSERT on the table and USAGE on its sequence, not SELECT. Rows get their seq in the order of the stream. Nearly
-- twice as fast as INSERT … SELECT FROM unnest(…). The tables have no optional columns here.
COPY {queue} (id, expires, headers, body) FROM STDIN (FORMAT binary)
