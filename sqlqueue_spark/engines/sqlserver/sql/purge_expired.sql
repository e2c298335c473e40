-- purge_expired.sql · SQL Server · deletes the next expired rows
-- in: after which RowVersion, up to which, how many     out: the RowVersion of each deleted row
-- Expired rows are found by Index_Expires, oldest first, so each batch begins where none is left. The range stands here
-- only as in the twin: as a condition it would let the plan go by RowVersion and lock the whole backlog. GETUTCDATE(),
-- not SYSUTCDATETIME(): of the column's own type, or the seek would need a conversion. IS NOT NULL is what a filtered
-- index says. Else as purge.sql.
SET DEADLOCK_PRIORITY LOW;
DECLARE @after bigint = ?, @up_to bigint = ?, @rows bigint = ?;
WITH batch AS (
    SELECT TOP (@rows) RowVersion
    FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE Expires IS NOT NULL AND Expires <= GETUTCDATE() AND COALESCE(DATALENGTH(Headers), 0) >= 0
    ORDER BY Expires
)
DELETE FROM batch
OUTPUT deleted.RowVersion
OPTION (MAXDOP 1)
