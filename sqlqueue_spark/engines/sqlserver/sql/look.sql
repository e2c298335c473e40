-- look.sql · SQL Server · the next rows in RowVersion order, locking nothing for longer than a row is read
-- in: after which RowVersion, up to which, how many     out: RowVersion, 0, bytes
-- For workers that take rows without a claim. Rows under an update lock are seen too, and stepped over when they are
-- taken; only then is judged what has expired. READPAST steps over rows that are just sent or deleted; with
-- READ_COMMITTED_SNAPSHOT on it is legal only beside READCOMMITTEDLOCK (error 650). FAST as in read.sql.
SELECT RowVersion,
       CAST(0 AS bit) AS expired,
       COALESCE(DATALENGTH(Headers), 0) + COALESCE(DATALENGTH(Body), 0) AS bytes
FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE RowVersion > ? AND RowVersion <= ?
ORDER BY RowVersion
OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY
OPTION (FAST 1)
