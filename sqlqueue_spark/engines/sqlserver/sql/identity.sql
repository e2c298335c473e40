-- identity.sql · SQL Server · which table a name means, for good
-- in: schema, table     out: schema, table, object id, creation date
-- The object id and the creation date survive TRUNCATE and index rebuilds, and not a DROP.
SELECT s.name, t.name, CAST(t.object_id AS bigint), CONVERT(varchar(33), t.create_date, 126)
FROM {catalog}.sys.tables AS t
JOIN {catalog}.sys.schemas AS s ON s.schema_id = t.schema_id
WHERE s.name = ? AND t.name = ?
