SELECT LOWER(CONVERT(char(36), Id)) AS Id,
       CAST(NULL AS nvarchar(255)) AS CorrelationId,
       CAST(NULL AS nvarchar(255)) AS ReplyToAddress,
       CAST([Recoverable] AS bit) AS Recoverable,
       Expires,
       CAST(Headers AS nvarchar(max)) AS Headers,
       Body,
       RowVersion,
       CAST(CASE WHEN Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired
FROM [dbo].[orders] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion > :after
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT :count ROWS ONLY
OPTION (FAST 1)
