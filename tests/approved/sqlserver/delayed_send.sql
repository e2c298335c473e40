DECLARE @moved nvarchar(max) = :moved, @sent bigint, @left bigint;
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
    FROM OPENJSON(@moved) WITH (
        n int '$[0]',
        RowVersion bigint '$[1]',
        Id uniqueidentifier '$[3]',
        kept int '$[4]',
        rest nvarchar(max) '$[5]'
    ) AS j
    INNER HASH JOIN (
    (SELECT DISTINCT CAST(m.Due AS datetime) AS Due FROM OPENJSON(@moved) WITH (Due varchar(23) '$[2]') AS m)
    AS t
    INNER LOOP JOIN [dbo].[orders.Delayed] AS d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON d.Due = t.Due
) ON d.RowVersion = j.RowVersion
) AS m
ORDER BY m.n
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10);
SET @sent = ROWCOUNT_BIG();
DELETE d
FROM OPENJSON(@moved) WITH (RowVersion bigint '$[1]') AS j
INNER HASH JOIN (
    (SELECT DISTINCT CAST(m.Due AS datetime) AS Due FROM OPENJSON(@moved) WITH (Due varchar(23) '$[2]') AS m)
    AS t
    INNER LOOP JOIN [dbo].[orders.Delayed] AS d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON d.Due = t.Due
) ON d.RowVersion = j.RowVersion
OPTION (MAXDOP 1, MAX_GRANT_PERCENT = 10);
SET @left = ROWCOUNT_BIG();
SELECT @left, @sent
