SELECT s.name, t.name, CAST(t.object_id AS bigint), CONVERT(varchar(33), t.create_date, 126)
FROM [shop].sys.tables AS t
JOIN [shop].sys.schemas AS s ON s.schema_id = t.schema_id
WHERE s.name = ? AND t.name = ?
