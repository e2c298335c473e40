DELETE q
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (first bigint '$[0]', last bigint '$[1]') AS run
INNER LOOP JOIN [dbo].[orders] AS q WITH (ROWLOCK, FORCESEEK) ON q.RowVersion BETWEEN run.first AND run.last
OPTION (MAXDOP 1)
