-- stage_index.sql · PostgreSQL · finds the mark of a stage without a scan; the other rows are not in it
-- Its name carries the table's, as names of indexes are per schema.
CREATE UNIQUE INDEX IF NOT EXISTS {mark} ON {stage} (task) WHERE task = ''
