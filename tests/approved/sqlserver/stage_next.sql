SELECT MAX(RowVersion)
FROM (
    SELECT RowVersion
    FROM [dbo].[billing.Outgoing]
    WHERE Destination = ?
      AND Task IN (SELECT value COLLATE Latin1_General_BIN2 FROM OPENJSON(CAST(? AS nvarchar(max))))
      AND RowVersion > ?
    ORDER BY RowVersion
    OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY
) AS n
