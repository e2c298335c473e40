-- claim.sql · SQL Server · locks the next rows in RowVersion order
-- in: after which RowVersion, up to which, how many     out: RowVersion, expired, bytes
-- READPAST steps over rows other receivers hold; UPDLOCK keeps what is read until the transaction ends.
-- Expires is read so that on a heap the row itself is locked, not only the index key. FORCESEEK: a scan with a
-- sort would lock every row of the table on the way; without an index on RowVersion it is an error instead. FAST 1 and
-- MAXDOP 1: reading ahead on a heap, and the threads of a parallel plan, would lock rows that nobody is told of.
SELECT RowVersion,
       CAST(CASE WHEN Expires <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS bit) AS expired,
       COALESCE(DATALENGTH(Headers), 0) + COALESCE(DATALENGTH(Body), 0) AS bytes
FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
WHERE RowVersion > ? AND RowVersion <= ?
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY
OPTION (FAST 1, MAXDOP 1)
