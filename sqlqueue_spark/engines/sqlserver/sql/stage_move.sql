-- stage_move.sql · SQL Server · sends staged messages to their destination, in the order of the stage
-- in: destination, tasks as JSON, after which RowVersion, up to which     out: number of rows
-- Only rows of tasks that Spark has accepted: a twin, or a task of an attempt that failed, may have left others.
-- {columns} are those of the destination. At most 2,400 rows: with a page each they make 4,800 locks, and 5,000 may escalate to a
-- table lock.
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM {stage}
WHERE Destination = ?
  AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max))))
  AND RowVersion > ? AND RowVersion <= ?
ORDER BY RowVersion
