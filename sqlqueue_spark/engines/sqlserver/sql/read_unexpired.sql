-- read_unexpired.sql · SQL Server · reads the rows of a range that have not expired
-- in: first RowVersion, last RowVersion     out: the eight columns of a message
-- As read.sql, hints included, for a look at a queue that claims nothing.
SELECT LOWER(CONVERT(char(36), Id)) AS Id,
       CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
       CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
       CAST({Recoverable} AS bit) AS Recoverable,
       Expires,
       CAST(Headers AS nvarchar(max)) AS Headers,
       Body,
       RowVersion
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion BETWEEN ? AND ? AND (Expires IS NULL OR Expires > SYSUTCDATETIME())
ORDER BY RowVersion
OPTION (FAST 1)
