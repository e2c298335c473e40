INSERT INTO [dbo].[orders] ([Id], [Recoverable], [Expires], [Headers], [Body])
SELECT [Id], [Recoverable], [Expires], [Headers], [Body]
FROM (
    SELECT j.n,
           j.Id,
           j.CorrelationId,
           j.ReplyToAddress,
           COALESCE(j.Recoverable, CAST(1 AS bit)) AS Recoverable,
           j.Expires,
           j.Headers,
           j.Body
    FROM OPENJSON(CAST(:messages AS nvarchar(max))) WITH (
        n int '$[0]',
        Id uniqueidentifier '$[1]',
        Expires datetime2(3) '$[2]',
        Headers nvarchar(max) '$[3]',
        Body varbinary(max) '$[4]',
        CorrelationId nvarchar(255) '$[5]',
        ReplyToAddress nvarchar(255) '$[6]',
        Recoverable bit '$[7]'
    ) AS j
) AS m
ORDER BY m.n
OPTION (MAX_GRANT_PERCENT = 10)
