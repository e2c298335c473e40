-- index_names.sql · PostgreSQL · the names that a new index cannot have
-- in: object id of the table     out: name
-- Every relation of the schema takes part: indexes share their names with tables.
SELECT c.relname::text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_class AS q ON q.relnamespace = c.relnamespace
WHERE q.oid = ?::oid
