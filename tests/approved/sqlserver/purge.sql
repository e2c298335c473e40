SET DEADLOCK_PRIORITY LOW;
DECLARE @after bigint = ?, @up_to bigint = ?, @rows bigint = ?;
WITH batch AS (
    SELECT TOP (@rows) RowVersion
    FROM [dbo].[orders] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE RowVersion > @after AND RowVersion <= @up_to AND COALESCE(DATALENGTH(Headers), 0) >= 0
    ORDER BY RowVersion
)
DELETE FROM batch
OUTPUT deleted.RowVersion
OPTION (MAXDOP 1)
