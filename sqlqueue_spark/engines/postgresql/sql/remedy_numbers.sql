-- remedy_numbers.sql · PostgreSQL · a remedy for people: numbers for the next centuries
-- The table is rewritten and locked meanwhile: quick when the queue is nearly empty.
ALTER SEQUENCE {sequence} AS bigint;
ALTER TABLE {queue} ALTER COLUMN seq TYPE bigint;
