-- stage_mark.sql · SQL Server · the mark of a stage
-- out: the mark, as JSON; no row when nobody has opened the stage
-- UPDLOCK, so that two sinks of one batch add to it one after the other. INDEX: a plan that was made when the stage was
-- empty scans it, and would then lock every row of a full one, waiting for those that are just being staged. RECOMPILE:
-- where the database makes a parameter of every literal, the index would not serve.
SELECT Headers
FROM {stage} WITH (UPDLOCK, ROWLOCK, INDEX (Index_Mark))
WHERE Task = ''
OPTION (RECOMPILE)
