SET DEADLOCK_PRIORITY LOW;
DECLARE @after bigint = ?, @up_to bigint = ?, @rows bigint = ?;
WITH batch AS (
    SELECT TOP (@rows) RowVersion
    FROM [dbo].[orders] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE Expires IS NOT NULL AND Expires <= GETUTCDATE() AND COALESCE(DATALENGTH(Headers), 0) >= 0
    ORDER BY Expires
)
DELETE FROM batch
OUTPUT deleted.RowVersion
OPTION (MAXDOP 1)
