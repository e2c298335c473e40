-- outbox_exists.sql · SQL Server · whether an outbox table is there
-- in: schema, table     out: its name
SELECT t.name
FROM sys.tables AS t
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE s.name = ? AND t.name = ?
