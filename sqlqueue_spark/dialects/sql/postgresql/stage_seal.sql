-- stage_seal.sql · PostgreSQL · says in the mark which rows count
-- in: the mark, as JSON     out: number of rows
UPDATE {stage} SET mark = ? WHERE task = ''
