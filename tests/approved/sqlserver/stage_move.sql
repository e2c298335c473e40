INSERT INTO [dbo].[orders] ([Id], [Recoverable], [Expires], [Headers], [Body])
SELECT [Id], [Recoverable], [Expires], [Headers], [Body]
FROM [dbo].[billing.Outgoing]
WHERE Destination = ?
  AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max))))
  AND RowVersion > ? AND RowVersion <= ?
ORDER BY RowVersion
