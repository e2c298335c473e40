-- take.sql · SQL Server · deletes the rows of a range and returns them
-- in: first RowVersion, last RowVersion, how many     out: the eight columns of a message, and whether it is expired,
-- in any order
-- READPAST steps over rows that others hold: they stay, and nobody waits. It must meet their locks while it looks: the
-- delete itself would wait. So the length of Headers (always true) makes it look at the row and not only at an index
-- key. FORCESEEK: a scan with a sort would lock every row; it may stand in a FROM clause, not beside DELETE (error
-- 10724). At most as many as were planned, for others may have come up in between. The values are declared first
-- because TOP stands before the others in the text. Columns as in read.sql; OUTPUT may name a column of the common
-- table expression where it is a plain expression (error 4186 forbids subqueries). MAXDOP as in claim.sql.
DECLARE @first bigint = ?, @last bigint = ?, @rows bigint = ?;
WITH batch AS (
    SELECT TOP (@rows)
           Id,
           CAST({CorrelationId} AS nvarchar(255)) AS CorrelationId,
           CAST({ReplyToAddress} AS nvarchar(255)) AS ReplyToAddress,
           CAST({Recoverable} AS bit) AS Recoverable,
           Expires,
           Headers,
           Body,
           RowVersion
    FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE RowVersion BETWEEN @first AND @last AND COALESCE(DATALENGTH(Headers), 0) >= 0
    ORDER BY RowVersion
)
DELETE FROM batch
OUTPUT LOWER(CONVERT(char(36), deleted.Id)) AS Id,
       deleted.CorrelationId,
       deleted.ReplyToAddress,
       deleted.Recoverable,
       deleted.Expires,
       CAST(deleted.Headers AS nvarchar(max)) AS Headers,
       deleted.Body,
       deleted.RowVersion,
       CAST(CASE WHEN deleted.Expires <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS bit) AS expired
OPTION (MAXDOP 1)
