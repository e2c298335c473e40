-- stage_count.sql · SQL Server · how many messages tasks have on a stage
-- in: tasks as JSON, after which RowVersion     out: task, messages
SELECT Task, COUNT_BIG(*)
FROM {stage}
WHERE Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max)))) AND RowVersion > ?
GROUP BY Task
