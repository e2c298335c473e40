-- schema.sql · PostgreSQL · whether a schema is there
-- in: schema     out: its name
SELECT nspname::text FROM pg_catalog.pg_namespace WHERE nspname = ?
