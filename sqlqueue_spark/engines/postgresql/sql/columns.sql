-- columns.sql · PostgreSQL · the columns of a table
-- in: schema, table     out: name, type, whether it may be null, whether it is computed
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod)::text, NOT a.attnotnull, a.attgenerated <> ''
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relname = ? AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
