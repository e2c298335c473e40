-- stage_mark.sql · PostgreSQL · the mark of a stage
-- out: the mark, as JSON; no row when nobody has opened the stage
-- Locked, so that two sinks of one batch add to it one after the other.
SELECT mark FROM {stage} WHERE task = '' FOR UPDATE
