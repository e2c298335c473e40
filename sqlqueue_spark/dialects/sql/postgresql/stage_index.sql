-- stage_index.sql · PostgreSQL · finds the mark of a stage without a scan; the other rows are not in it
CREATE UNIQUE INDEX ON {stage} (task) WHERE task = ''
