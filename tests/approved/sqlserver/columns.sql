SELECT c.name, CONCAT(y.name, CASE WHEN c.max_length = -1 THEN '(max)' END), c.is_nullable, c.is_computed
FROM [shop].sys.columns AS c
JOIN [shop].sys.tables AS t ON t.object_id = c.object_id
JOIN [shop].sys.schemas AS s ON s.schema_id = t.schema_id
JOIN [shop].sys.types AS y ON y.user_type_id = c.user_type_id
WHERE s.name = ? AND t.name = ?
ORDER BY c.column_id
