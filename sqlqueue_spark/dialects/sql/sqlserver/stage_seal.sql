-- stage_seal.sql · SQL Server · says in the mark which rows count
-- in: the mark, as JSON     out: number of rows
UPDATE {stage} WITH (ROWLOCK) SET Headers = ? WHERE Task = ''
