-- numbers.sql · SQL Server · what numbers the rows of a table
-- in: object id of the table, twice     out: schema and name of the table, last number (NULL: none yet), highest number
-- The identity belongs to the column, so it goes by the table's name.
SELECT s.name, t.name, CAST(c.last_value AS bigint), CAST(9223372036854775807 AS bigint)
FROM {catalog}.sys.identity_columns AS c
JOIN {catalog}.sys.tables AS t ON t.object_id = c.object_id
JOIN {catalog}.sys.schemas AS s ON s.schema_id = t.schema_id
WHERE c.object_id = ? AND t.object_id = ? AND c.name = 'RowVersion'
