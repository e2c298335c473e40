-- lock.sql · SQL Server · locks again what is left of a claim, waiting for rows that others hold
-- in: the runs as JSON [[first,last],…]     out: RowVersion, bytes
-- No READPAST: a row left out here and rolled back there would later be deleted unprocessed. Expires is read
-- so that on a heap the row itself is locked. OPENJSON needs compatibility level 130, and refuses the
-- ntext as which pyodbc sends a long text. MAXDOP 1: one thread locks in ascending order, as everybody who waits does.
SELECT q.RowVersion, COALESCE(DATALENGTH(q.Headers), 0) + COALESCE(DATALENGTH(q.Body), 0) AS bytes, q.Expires
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (first bigint '$[0]', last bigint '$[1]') AS run
INNER LOOP JOIN {queue} AS q WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON q.RowVersion BETWEEN run.first AND run.last
ORDER BY q.RowVersion
OPTION (MAXDOP 1)
