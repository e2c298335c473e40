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

-- name: table_lock
-- Keeps a table from getting new code until the transaction ends.
-- Each command that gives a table a trigger, a rule, a policy, an index, an owner or another name waits for
-- this lock. A login needs INSERT, UPDATE or DELETE for it.
LOCK TABLE ONLY {queue} IN ROW EXCLUSIVE MODE

-- name: table_look_lock
-- Does so for a login that may only look. It keeps out all of these but indexes and triggers.
LOCK TABLE ONLY {queue} IN ACCESS SHARE MODE

-- name: code_of_strangers
-- Returns what code of a table of a stranger would run as this login: none where its owner is this login, a
-- superuser or the database's owner.
-- in: schema, table
-- out: reason, what it is about, whether a look at its rows runs it (else only receiving does), the owner
-- A policy runs for each row. A cast runs where a column has a type of a stranger. When a statement is
-- planned, the server computes what it can of the expressions of indexes, of statistics and, if told so, of
-- checks, also for a plain look. Who owns a schema and may create schemas can put another table in the place
-- of this one.
WITH trusted AS ({trusted}), found AS (
    SELECT c.oid, c.relispartition, n.nspowner, pg_catalog.pg_get_userbyid(c.relowner)::text AS owner
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relname = :name AND c.relowner NOT IN (SELECT t.oid FROM trusted AS t)
), computed AS (
    SELECT 'index' AS kind, 'pg_catalog.pg_class'::regclass::oid AS catalog, c.oid, c.relname::text AS name,
        f.owner
    FROM found AS f
    JOIN pg_catalog.pg_index AS i ON i.indrelid = f.oid
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    UNION ALL
    SELECT 'statistics', 'pg_catalog.pg_statistic_ext'::regclass::oid, s.oid, s.stxname::text, f.owner
    FROM found AS f
    JOIN pg_catalog.pg_statistic_ext AS s ON s.stxrelid = f.oid
    UNION ALL
    SELECT 'check', 'pg_catalog.pg_constraint'::regclass::oid, k.oid, k.conname::text, f.owner
    FROM found AS f
    JOIN pg_catalog.pg_constraint AS k ON k.conrelid = f.oid AND k.contype = 'c'
    WHERE current_setting('constraint_exclusion') = 'on'
)
SELECT 'policy', p.polname::text, true, f.owner
FROM found AS f
JOIN pg_catalog.pg_policy AS p ON p.polrelid = f.oid
WHERE pg_catalog.row_security_active(f.oid)
UNION ALL
SELECT 'type', a.attname::text, true, f.owner
FROM found AS f
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = f.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type AS y ON y.oid = a.atttypid
WHERE y.typowner NOT IN (SELECT t.oid FROM trusted AS t)
UNION ALL
SELECT e.kind, e.name, true, e.owner
FROM computed AS e
WHERE EXISTS (
    SELECT
    FROM pg_catalog.pg_depend AS d
    LEFT JOIN pg_catalog.pg_proc AS p
        ON d.refclassid = 'pg_catalog.pg_proc'::regclass::oid AND p.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_operator AS o
        ON d.refclassid = 'pg_catalog.pg_operator'::regclass::oid AND o.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_type AS y
        ON d.refclassid = 'pg_catalog.pg_type'::regclass::oid AND y.oid = d.refobjid
    WHERE d.classid = e.catalog AND d.objid = e.oid
      AND coalesce(p.proowner, o.oprowner, y.typowner) NOT IN (SELECT t.oid FROM trusted AS t)
)
UNION ALL
SELECT 'schema', pg_catalog.pg_get_userbyid(f.nspowner)::text, true, f.owner
FROM found AS f
WHERE f.nspowner NOT IN (SELECT t.oid FROM trusted AS t)
  AND pg_catalog.has_database_privilege(f.nspowner, current_database(), 'CREATE')
UNION ALL
SELECT 'trigger', g.tgname::text, false, f.owner
FROM found AS f
JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = f.oid AND NOT g.tgisinternal AND (g.tgtype::int & 8) <> 0
UNION ALL
SELECT 'rule', r.rulename::text, false, f.owner
FROM found AS f
JOIN pg_catalog.pg_rewrite AS r ON r.ev_class = f.oid AND r.ev_type = '4'
UNION ALL
SELECT 'partition', '', false, f.owner
FROM found AS f
WHERE f.relispartition
