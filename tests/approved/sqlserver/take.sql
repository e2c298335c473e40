WITH batch AS (
    SELECT TOP (:count)
           Id,
           CAST(NULL AS nvarchar(255)) AS CorrelationId,
           CAST(NULL AS nvarchar(255)) AS ReplyToAddress,
           CAST([Recoverable] AS bit) AS Recoverable,
           Expires, Headers, Body, RowVersion
    FROM [dbo].[orders] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE RowVersion BETWEEN :first AND :last AND COALESCE(DATALENGTH(Headers), 0) + COALESCE(DATALENGTH(Body), 0) <= 1000000000
      AND (COALESCE(CHARINDEX(N'NServiceBus.SqlServer.ForwardDestination',
          Headers COLLATE Latin1_General_BIN2), 0) = 0
           OR RowVersion IN (NULL))
    ORDER BY RowVersion
)
DELETE FROM batch
OUTPUT LOWER(CONVERT(char(36), deleted.Id)) AS Id,
       deleted.CorrelationId,
       deleted.ReplyToAddress,
       deleted.Recoverable,
       deleted.Expires,
       CAST(deleted.Headers AS nvarchar(max)) AS Headers,
       deleted.Body, deleted.RowVersion,
       CAST(CASE WHEN deleted.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired
OPTION (MAXDOP 1)
