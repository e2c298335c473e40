INSERT INTO [dbo].[orders] ([Id], [Recoverable], [Expires], [Headers], [Body])
SELECT TOP (1) [Id], [Recoverable], [Expires], [Headers], [Body]
FROM [dbo].[billing.Outgoing]
WHERE Destination = :destination
  AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(:tasks AS nvarchar(max))))
ORDER BY RowVersion
