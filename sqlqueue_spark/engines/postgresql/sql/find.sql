-- find.sql · PostgreSQL · how a table is found

-- name: database
-- the database we are connected to
-- out: its name, whether it takes no changes: the server is a standby
SELECT current_database()::text, pg_is_in_recovery()

-- name: catalog
-- how the server spells the name of a database
-- in: its name     out: its name
-- There is one spelling only.
SELECT ?::text

-- name: identity
-- which table a name means, for good
-- in: schema, table     out: schema, table, object id, creation date (unknown here)
-- The object id survives VACUUM FULL and TRUNCATE, which change the file number, and not a DROP.
-- No partitioned table, and none from which others inherit: their rows are not told apart by ctid, by which a claim is
-- deleted.
SELECT n.nspname::text, c.relname::text, c.oid::bigint, ''
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relname = ? AND c.relkind = 'r'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid)

-- name: columns
-- the columns of a table
-- in: schema, table     out: name, type, whether it may be null, whether it is computed
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod)::text, NOT a.attnotnull, a.attgenerated <> ''
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relname = ? AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
