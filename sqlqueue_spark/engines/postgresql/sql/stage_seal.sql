-- stage_seal.sql · PostgreSQL · replaces the mark of a stage: whose it is, and which rows count
-- in: the mark, as JSON     out: number of rows
UPDATE {stage} SET mark = ? WHERE task = ''
