-- stage_try.sql · SQL Server · sends one staged message to its destination, for the caller to roll back
-- in: destination, tasks as JSON     out: number of rows
-- What a destination refuses (a missing right, a column that must be filled, a trigger) is so found before the batch is done.
INSERT INTO {queue} ({columns})
SELECT TOP (1) {columns}
FROM {stage}
WHERE Destination = ?
  AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max))))
ORDER BY RowVersion
