-- purge.sql · SQL Server · deletes the next rows, whatever they are
-- in: after which RowVersion, up to which, how many     out: the RowVersion of each deleted row
-- READPAST steps over rows receivers hold: they stay, and nobody waits. It must meet their locks while it looks: the
-- delete itself would wait. So the length of Headers (always true) makes it look at the row and not only at an index
-- key. FORCESEEK: a scan with a sort would lock every row; it may stand in a FROM clause, not beside DELETE (error
-- 10724). The values are declared first because TOP stands before the others in the text. MAXDOP as in claim.sql. DEADLOCK_PRIORITY,
-- which ends with the batch: where an index key and its row are locked in both orders, nobody loses his work to a cleanup.
SET DEADLOCK_PRIORITY LOW;
DECLARE @after bigint = ?, @up_to bigint = ?, @rows bigint = ?;
WITH batch AS (
    SELECT TOP (@rows) RowVersion
    FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE RowVersion > @after AND RowVersion <= @up_to AND COALESCE(DATALENGTH(Headers), 0) >= 0
    ORDER BY RowVersion
)
DELETE FROM batch
OUTPUT deleted.RowVersion
OPTION (MAXDOP 1)
