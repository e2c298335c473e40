-- index_names.sql · SQL Server · the names that a new index cannot have
-- in: object id of the table     out: name
SELECT i.name FROM {catalog}.sys.indexes AS i WHERE i.object_id = ? AND i.name IS NOT NULL
