-- stage_mark.sql · SQL Server · the mark of a stage
-- out: the mark, as JSON; no row when nobody has opened the stage
-- UPDLOCK, so that two sinks of one batch add to it one after the other.
SELECT Headers FROM {stage} WITH (UPDLOCK, ROWLOCK) WHERE Task = ''
