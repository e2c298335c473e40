INSERT INTO [dbo].[orders] ([Id], [Recoverable], [Expires], [Headers], [Body])
SELECT TOP (1) [Id], [Recoverable], [Expires], [Headers], [Body]
FROM [dbo].[billing.Outgoing]
WHERE Destination = CAST(:destination AS nvarchar(776))
  AND Task IN (
      SELECT t.Task COLLATE Latin1_General_BIN2
      FROM OPENJSON(CAST(:tasks AS nvarchar(max))) WITH (Task varchar(36) '$') AS t
  )
