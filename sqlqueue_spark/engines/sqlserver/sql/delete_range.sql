-- delete_range.sql · SQL Server · deletes one run of a claim that this transaction has locked
-- in: first RowVersion, last RowVersion     out: number of rows
-- As delete.sql for the usual claim, which is one run. At most 2,400 rows a statement.
DELETE q
FROM {queue} AS q WITH (ROWLOCK, FORCESEEK)
WHERE q.RowVersion BETWEEN ? AND ?
OPTION (MAXDOP 1)
