-- list.sql · PostgreSQL · which tables of a database belong to queues, and how much is in them

-- name: tables
-- Returns the columns of every table that may be a queue, an outbox, a delayed table or a stage.
-- in: schema, or '' for all of them
-- out: schema, table, object id, column, rows by the statistics, the owner if that is a stranger (else '')
-- The client recognises a table by all its columns. One that has neither headers nor operations is none of
-- these. As in identity, tables from which others inherit are left out. Only the catalogue and the statistics
-- are read.
SELECT n.nspname::text, c.relname::text, c.oid::bigint, a.attname::text, coalesce(s.n_live_tup, 0)::bigint,
    CASE WHEN c.relowner IN ({trusted}) THEN '' ELSE pg_catalog.pg_get_userbyid(c.relowner) END::text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_stat_all_tables AS s ON s.relid = c.oid
WHERE c.relkind = 'r' AND (:schema = '' OR n.nspname = :schema)
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
  AND EXISTS (
      SELECT FROM pg_catalog.pg_attribute AS k
      WHERE k.attrelid = c.oid AND k.attnum > 0 AND NOT k.attisdropped
          AND k.attname IN ('headers', 'Operations')
  )
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid)
ORDER BY n.nspname, c.relname, a.attnum

-- name: count_rows
-- Counts the rows of a table that is not too large.
-- in: object id of the table, how many bytes are too many     out: rows; NULL where the table is larger
-- A count reads the whole table. Large values lie elsewhere and do not count: they are not read. Plain reads
-- wait for no row lock here, but they wait for a table that is being altered.
SELECT CASE WHEN pg_relation_size(:object_id::oid::regclass) < :too_many::bigint
    THEN (SELECT count(*) FROM {queue}) END

-- shared: trusted
    SELECT r.oid
    FROM pg_catalog.pg_roles AS r
    WHERE r.rolsuper OR r.rolname IN (current_user, 'pg_database_owner')
    UNION ALL
    SELECT d.datdba FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()
