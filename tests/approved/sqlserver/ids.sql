SELECT q.RowVersion, LOWER(CONVERT(char(36), q.Id)) AS Id
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (first bigint '$[0]', last bigint '$[1]') AS run
INNER LOOP JOIN [dbo].[orders] AS q WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK)
    ON q.RowVersion BETWEEN run.first AND run.last
ORDER BY q.RowVersion
