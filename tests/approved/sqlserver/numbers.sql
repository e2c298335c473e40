SELECT s.name, t.name, CAST(c.last_value AS bigint), CAST(9223372036854775807 AS bigint)
FROM [shop].sys.identity_columns AS c
JOIN [shop].sys.tables AS t ON t.object_id = c.object_id
JOIN [shop].sys.schemas AS s ON s.schema_id = t.schema_id
WHERE c.object_id = ? AND t.object_id = ? AND c.name = 'RowVersion'
