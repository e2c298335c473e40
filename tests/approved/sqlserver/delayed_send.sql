DECLARE @sent bigint, @left bigint;
INSERT INTO [dbo].[orders] ([Id], [Recoverable], [Expires], [Headers], [Body])
SELECT [Id], [Recoverable], [Expires], [Headers], [Body]
FROM (
    SELECT j.n,
           j.Id,
           CAST(NULL AS nvarchar(255)) AS CorrelationId,
           CAST(NULL AS nvarchar(255)) AS ReplyToAddress,
           CAST(1 AS bit) AS Recoverable,
           CAST(NULL AS datetime) AS Expires,
           LEFT(CAST(d.Headers AS nvarchar(max)) COLLATE Latin1_General_BIN2, j.kept) + j.rest AS Headers,
           COALESCE(d.Body, 0x) AS Body
    FROM OPENJSON(CAST(:moved AS nvarchar(max))) WITH (
        n int '$[0]',
        RowVersion bigint '$[1]',
        Id uniqueidentifier '$[2]',
        kept int '$[3]',
        rest nvarchar(max) '$[4]'
    ) AS j
    JOIN [dbo].[orders.Delayed] AS d WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON d.RowVersion = j.RowVersion
    WHERE d.Due <= CAST(:up_to AS datetime)
) AS m
ORDER BY m.n
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10);
SET @sent = ROWCOUNT_BIG();
DELETE d
FROM [dbo].[orders.Delayed] AS d WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
WHERE d.Due <= CAST(:up_to AS datetime)
  AND d.RowVersion IN (
      SELECT j.RowVersion
      FROM OPENJSON(CAST(:moved AS nvarchar(max))) WITH (RowVersion bigint '$[1]') AS j
  )
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10);
SET @left = ROWCOUNT_BIG();
SELECT @left, @sent
