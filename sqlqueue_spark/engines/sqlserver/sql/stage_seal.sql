-- stage_seal.sql · SQL Server · replaces the mark of a stage: whose it is, and which rows count
-- in: the mark, as JSON     out: number of rows
-- INDEX as in stage_mark.sql.
UPDATE s
SET Headers = ?
FROM {stage} AS s WITH (ROWLOCK, INDEX (Index_Mark))
WHERE s.Task = ''
