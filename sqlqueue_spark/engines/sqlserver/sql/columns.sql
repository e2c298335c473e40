-- columns.sql · SQL Server · the columns of a table
-- in: schema, table     out: name, type, whether it may be null, whether it is computed
SELECT c.name, CONCAT(y.name, CASE WHEN c.max_length = -1 THEN '(max)' END), c.is_nullable, c.is_computed
FROM {catalog}.sys.columns AS c
JOIN {catalog}.sys.tables AS t ON t.object_id = c.object_id
JOIN {catalog}.sys.schemas AS s ON s.schema_id = t.schema_id
JOIN {catalog}.sys.types AS y ON y.user_type_id = c.user_type_id
WHERE s.name = ? AND t.name = ?
ORDER BY c.column_id
