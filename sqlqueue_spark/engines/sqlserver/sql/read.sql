-- read.sql · SQL Server · reads the rows of a range
-- in: first RowVersion, last RowVersion     out: the eight columns of a message
-- Shared locks pass the driver's update locks. READPAST steps over rows others delete just now (they are not in
-- the claim); with READ_COMMITTED_SNAPSHOT on it is legal only beside READCOMMITTEDLOCK (error 650).
-- FORCESEEK: on a heap a wide range may look cheaper as a scan of the whole backlog with a sort. FAST 1: where the server
-- expects many rows it reads ahead on a heap, and then keeps all their locks until the last row is fetched, or one on the
-- whole table instead of them (docs/sqlserver-locking.md).
-- Headers are varchar or nvarchar, by the table's age. Columns the table does not have arrive as NULL.
SELECT LOWER(CONVERT(char(36), Id)) AS Id,
       CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
       CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
       CAST({Recoverable} AS bit) AS Recoverable,
       Expires,
       CAST(Headers AS nvarchar(max)) AS Headers,
       Body,
       RowVersion
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion BETWEEN ? AND ?
ORDER BY RowVersion
OPTION (FAST 1)
