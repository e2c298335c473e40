-- ends.sql · PostgreSQL · the lowest and the highest seq that are there now
-- out: both, or NULL twice
-- One statement, so both are of one moment: rows that are sent in between stand above what is looked at, and no old one
-- is left out for them. Two probes of the index.
SELECT min(seq)::bigint, max(seq)::bigint FROM {queue}
