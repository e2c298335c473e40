-- stage_index.sql · SQL Server · finds the mark of a stage without a scan; the other rows are not in it
CREATE UNIQUE NONCLUSTERED INDEX Index_Mark ON {stage} (Task) WHERE Task = ''
