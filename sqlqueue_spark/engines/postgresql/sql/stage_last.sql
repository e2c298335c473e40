-- stage_last.sql · PostgreSQL · the number of the last row on a stage
-- out: the last seq or NULL
-- A scan, but of a row for thousands of messages, and of no message.
SELECT max(seq) FROM {stage}
