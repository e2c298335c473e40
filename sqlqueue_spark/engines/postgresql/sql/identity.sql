-- identity.sql · PostgreSQL · which table a name means, for good
-- in: schema, table     out: schema, table, object id, creation date (unknown here)
-- The object id survives VACUUM FULL and TRUNCATE, which change the file number, and not a DROP.
-- No partitioned table, and none from which others inherit: their rows are not told apart by ctid, by which a claim is
-- deleted.
SELECT n.nspname::text, c.relname::text, c.oid::bigint, ''
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relname = ? AND c.relkind = 'r'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid)
