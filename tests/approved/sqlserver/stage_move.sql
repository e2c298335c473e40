INSERT INTO [dbo].[orders] ([Id], [Recoverable], [Expires], [Headers], [Body])
SELECT [Id], [Recoverable], [Expires], [Headers], [Body]
FROM [dbo].[billing.Outgoing]
WHERE Destination = :destination
  AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(:tasks AS nvarchar(max))))
  AND RowVersion > :after AND RowVersion <= :up_to
ORDER BY RowVersion
