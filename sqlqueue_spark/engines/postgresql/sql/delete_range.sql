-- delete_range.sql · PostgreSQL · deletes one run of a claim that this transaction has locked
-- in: first seq, last seq     out: number of rows
-- As delete.sql for the usual claim, which is one run: twice as fast.
DELETE FROM {queue}
WHERE seq BETWEEN ? AND ?
