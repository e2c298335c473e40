SELECT Task, COUNT_BIG(*)
FROM [dbo].[billing.Outgoing]
WHERE Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max)))) AND RowVersion > ?
GROUP BY Task
