SELECT c.relname::text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_class AS q ON q.relnamespace = c.relnamespace
WHERE q.oid = ?::oid
