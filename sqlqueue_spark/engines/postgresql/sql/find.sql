-- find.sql · PostgreSQL · how a table is found

-- name: database
-- Returns the database that we are connected to.
-- out: its name, whether it is read-only because the server is a standby, NULL: we reach no other database
SELECT current_database()::text, pg_is_in_recovery(), NULL

-- name: database_identity
-- Returns which database we are connected to, by an identity that its copies on other servers share.
SELECT concat(s.system_identifier, '/', d.oid)
FROM pg_control_system() AS s
CROSS JOIN pg_catalog.pg_database AS d
WHERE d.datname = current_database()

-- name: identity
-- Returns which table a name means, by an identity that lasts.
-- out: schema, table, object id, creation date (unknown here)
-- The object id survives VACUUM FULL and TRUNCATE, which change the file number, but not a DROP. The
-- statement finds no partitioned table, and no table from which others inherit. A claim is deleted by ctid,
-- and ctid does not tell their rows apart.
SELECT n.nspname::text, c.relname::text, c.oid::bigint, ''
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = :schema AND c.relname = :name AND c.relkind = 'r'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid)

-- name: namesakes
-- Returns what people may mean by a name that is no queue table: what has it in any schema, in any case.
SELECT n.nspname::text, c.relname::text,
       CASE c.relkind WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
         WHEN 'f' THEN 'foreign table' ELSE CASE WHEN c.oid IN (SELECT inhparent FROM pg_catalog.pg_inherits)
             THEN 'table from which others inherit' ELSE 'table' END END
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE lower(c.relname::text) = lower(:name::text) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY n.nspname, c.relname
LIMIT 20

-- name: columns
-- Returns the columns of a table.
-- out: name, type, whether it takes NULL, whether it is computed, whether the server fills it by itself
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod)::text, NOT a.attnotnull,
    a.attgenerated <> '', a.atthasdef OR a.attidentity <> ''
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = :schema AND c.relname = :name AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: storage
-- Returns how rows of a table are kept.
-- out: whether plain reads see row versions, whether the table is a heap with indexes that are locked apart
--     from it
-- Every read sees row versions here, and locks lie in the rows.
SELECT true, false
