SELECT q.RowVersion, COALESCE(DATALENGTH(q.Headers), 0) + COALESCE(DATALENGTH(q.Body), 0) AS bytes, q.Expires
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (first bigint '$[0]', last bigint '$[1]') AS run
INNER LOOP JOIN [dbo].[orders] AS q WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON q.RowVersion BETWEEN run.first AND run.last
ORDER BY q.RowVersion
OPTION (MAXDOP 1)
