-- highest.sql · PostgreSQL · the highest seq that is there now
-- out: seq or NULL
SELECT max(seq)::bigint FROM {queue}
