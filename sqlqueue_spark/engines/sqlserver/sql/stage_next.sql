-- stage_next.sql · SQL Server · how far the next rows of a destination reach on a stage
-- in: destination, tasks as JSON, after which RowVersion, how many     out: the last RowVersion or NULL
SELECT MAX(RowVersion)
FROM (
    SELECT RowVersion
    FROM {stage}
    WHERE Destination = ?
      AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max))))
      AND RowVersion > ?
    ORDER BY RowVersion
    OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY
) AS n
