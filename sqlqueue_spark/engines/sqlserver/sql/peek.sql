-- peek.sql · SQL Server · the first rows of a queue
-- in: how many     out: the eight columns of a message, and whether it is expired
-- Shared locks live for the moment a row is read and pass the update locks of receivers. READPAST steps over rows
-- that are just being sent or deleted; with READ_COMMITTED_SNAPSHOT on it is legal only beside READCOMMITTEDLOCK
-- (error 650). Headers are varchar or nvarchar, by the table's age. Columns the table does not have arrive as NULL.
SELECT LOWER(CONVERT(char(36), Id)) AS Id,
       CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
       CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
       CAST({Recoverable} AS bit) AS Recoverable,
       Expires,
       CAST(Headers AS nvarchar(max)) AS Headers,
       Body,
       RowVersion,
       CAST(CASE WHEN Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY
