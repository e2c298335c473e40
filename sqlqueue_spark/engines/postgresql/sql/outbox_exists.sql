-- outbox_exists.sql · PostgreSQL · whether an outbox table is there
-- in: schema, table     out: its name
SELECT c.relname::text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relname = ? AND c.relkind IN ('r', 'p')
