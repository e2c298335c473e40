SELECT TOP (10000) LOWER(CONVERT(char(36), Id)) AS Id,
       CAST(NULL AS nvarchar(255)) AS CorrelationId,
       CAST(NULL AS nvarchar(255)) AS ReplyToAddress,
       CAST([Recoverable] AS bit) AS Recoverable,
       Expires,
       CAST(Headers AS nvarchar(max)) AS Headers,
       Body,
       RowVersion
FROM [dbo].[orders] WITH (FORCESEEK)
WHERE RowVersion BETWEEN :first AND :last AND COALESCE(DATALENGTH(Headers), 0) + COALESCE(DATALENGTH(Body), 0) <= 1000000000
ORDER BY RowVersion
OPTION (FAST 1)
