-- ids.sql · SQL Server · the row ids of some rows, to prove that a claim is still the same rows
-- in: the runs as JSON [[first,last],…]     out: RowVersion, Id
-- READPAST with READCOMMITTEDLOCK is legal with and without RCSI; rows locked by ourselves are never passed.
SELECT q.RowVersion, LOWER(CONVERT(char(36), q.Id)) AS Id
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (first bigint '$[0]', last bigint '$[1]') AS run
INNER LOOP JOIN {queue} AS q WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK)
    ON q.RowVersion BETWEEN run.first AND run.last
ORDER BY q.RowVersion
