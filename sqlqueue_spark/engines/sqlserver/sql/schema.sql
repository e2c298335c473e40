-- schema.sql · SQL Server · whether a schema is there
-- in: schema     out: its name
SELECT name FROM {catalog}.sys.schemas WHERE name = ?
