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
-- in: how many bytes are too many     out: rows; NULL where the table is larger
-- A count reads the whole table. Large values lie elsewhere and do not count: they are not read. Plain reads
-- wait for no row lock here, but they wait for a table that is being altered.
SELECT CASE WHEN pg_relation_size(:object_id::oid::regclass) < :too_many::bigint
    THEN (SELECT count(*) FROM ONLY {queue}) END

-- shared: judged
WITH trusted AS (
    {trusted}
    UNION ALL
    SELECT c.relowner FROM pg_catalog.pg_class AS c
    WHERE c.oid IN (SELECT w.id::oid FROM pg_catalog.unnest(:trusted::text[]) AS w (id))
), found AS (
    SELECT w.at, c.oid, c.relkind, c.relispartition, c.relhastriggers, c.relowner, n.nspowner, c.relnatts,
        c.relispartition OR c.relhasrules OR c.relrowsecurity OR c.relchecks <> 0 AS marked, c.tableoid,
        :event::int AS event,
        :event::int = 4 OR current_setting('constraint_exclusion') = 'on' AS checked,
        c.relowner IN (SELECT t.oid FROM trusted AS t) AS own,
        n.nspowner NOT IN (SELECT t.oid FROM trusted AS t) AND EXISTS (
            SELECT FROM pg_catalog.pg_roles AS r
            WHERE pg_catalog.pg_has_role(r.oid, n.nspowner, 'MEMBER')
              AND pg_catalog.has_database_privilege(r.oid, current_database(), 'CREATE')
              AND r.oid NOT IN (SELECT t.oid FROM trusted AS t)
        ) AS replaceable,
        ARRAY(
            SELECT split_part(w.typed, ' ', 1) FROM pg_catalog.unnest(:columns::text[]) AS w (typed)
            EXCEPT
            SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              AND a.attname::text || ' ' || pg_catalog.format_type(a.atttypid, NULL) = ANY (:columns::text[])
        ) AS lacking,
        pg_catalog.pg_get_userbyid(c.relowner)::text AS owner
    FROM unnest(:schemas::text[], :tables::text[]) WITH ORDINALITY AS w (schema, name, at)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema::name
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.name::name
)

-- shared: trusted
    SELECT r.oid
    FROM pg_catalog.pg_roles AS r
    WHERE r.rolsuper OR r.rolname IN (current_user, 'pg_database_owner')
    UNION ALL
    SELECT d.datdba FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()

-- name: code_lock
-- Keeps tables from getting new code until the transaction ends. {queue} stands for all, in their order.
-- Each command that gives a table a trigger, a rule, a policy, a default, a check, an owner or another name
-- waits for this lock, and so does the use of a new index. It takes no snapshot, so that what is looked at
-- next was committed before the lock was granted, whatever the isolation. A login needs INSERT, UPDATE or
-- DELETE for it.
LOCK TABLE ONLY {queue} IN ROW EXCLUSIVE MODE

-- name: look_lock
-- Does so for a login that may only look. It keeps out all of these but triggers and indexes.
LOCK TABLE ONLY {queue} IN ACCESS SHARE MODE

-- name: foreign_table
-- Returns whose the tables are that no option names, and in which of them there may be code.
-- in: as foreign_code, and how many columns a queue has
-- out: reason (own, stranger: whose it is; code: foreign_code is asked), nothing, its owner, which it is
-- A new session needs 8 ms to plan foreign_code, and half of that for this. So for an insert it clears a
-- stranger's table that has no column but those of a queue, no index but on columns by the server's own
-- operators (whose numbers are below 16384), and no default but a serial's: nextval (1574) of a sequence of
-- its owner, which 480 makes an integer. In a tree only the names of nodes have capitals. The server sets
-- relhastriggers with a table's first trigger or key, and relhasrules with its first rule.
{judged}
SELECT CASE
    WHEN pg_catalog.cardinality(f.lacking) > 0 THEN 'code'
    WHEN f.event <> 0 AND (f.relkind <> 'r' OR f.relhastriggers OR f.replaceable) THEN 'code'
    WHEN f.own THEN 'own'
    WHEN f.event <> 4 OR f.relnatts <> :wanted::int OR f.marked OR EXISTS (
        SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = f.oid
          AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR 16384::oid <= ANY (i.indclass))
    ) OR EXISTS (
        SELECT FROM pg_catalog.pg_attrdef AS d
        WHERE d.adrelid = f.oid AND (
            pg_catalog.pg_column_size(d.adbin) > 1000 OR f.relowner <> ALL (
                SELECT s.relowner FROM pg_catalog.pg_depend AS p
                JOIN pg_catalog.pg_class AS s ON s.oid = p.refobjid AND s.relkind = 'S'
                WHERE p.classid = d.tableoid AND p.objid = d.oid AND p.refclassid = s.tableoid
            ) OR d.adbin::text
                !~ '^.FUNCEXPR [:]funcid (480 [^A-Z]*FUNCEXPR [:]funcid )?1574 [^A-Z]*CONST [^A-Z]*$'
        )
    ) THEN 'code'
    ELSE 'stranger'
END, '', f.owner, f.at
FROM found AS f

-- name: foreign_code
-- Returns what code of others would run as this login in tables that no option names.
-- in: the event as a bit of pg_trigger.tgtype (4: INSERT, 8: DELETE, 16: UPDATE; 0: a look), object ids of
--     tables whose owners are trusted, the columns that each must have (with a blank and each type that it
--     may have)
-- out: reason (none is key: an insert looks into a table of another one), what it is about, the table's
--     owner, which of the tables it is
-- Trusted are this login, the owners of these tables, superusers and the database's owner. A table of any of
-- them may have code. But the right to create a trigger can be given away, so what it calls must be theirs
-- too. For a foreign key the server works in the other table as its owner. On a delete his triggers may run;
-- on an insert what its indexes, statistics and checks compute, so there may be none. It cannot be locked: an
-- index that comes now runs as him in our session (key), where it can change settings, names and prepared
-- statements. Before version 18 a deferred trigger that it sets off would even run as this login.
-- In a table of anyone else, a trigger, a rule and a policy run, and a cast where a column has a type of a
-- stranger. An insert computes defaults, checks and indexes: what they call must be the server's own, and
-- either depend on nothing but its arguments or be named here, because query_to_xml runs any text as a query,
-- and satisfies_hash_partition computes the key of any table. These two stand in no dependency, so they
-- are read out of the expression's tree, where all of them together are not too large. A sequence belongs to
-- the table's owner, or this login would use up numbers of another queue; 2205 is regclass and 2210 an array
-- of these, by which a text could name one. Before version 15 what a generated column calls depends on the
-- table. For a look or a delete, the server computes what it can of indexes, statistics and, if told so,
-- checks. No lock on the table prevents that the owner of its schema, if he may create schemas, puts another
-- one in its place, or that its own owner lets others inherit from it: statements look into it ONLY.
{judged}, code AS (
    SELECT f.at, 'trigger' AS kind, g.tgname::text AS name, g.tableoid AS catalog, g.oid, g.tgqual AS tree
    FROM found AS f
    JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = f.oid
    WHERE NOT g.tgisinternal AND (g.tgtype::int & f.event) <> 0
    UNION ALL
    SELECT f.at, 'default', a.attname::text, x.home, x.oid, x.tree
    FROM found AS f
    JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = f.oid
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    CROSS JOIN LATERAL (VALUES (d.tableoid, d.oid, d.adbin), (f.tableoid, f.oid, NULL)) AS x (home, oid, tree)
    WHERE NOT f.own AND f.event = 4 AND (x.tree IS NOT NULL OR a.attgenerated <> '')
    UNION ALL
    SELECT f.at, 'check', k.conname::text, k.tableoid, k.oid, k.conbin
    FROM found AS f
    JOIN pg_catalog.pg_constraint AS k ON k.conrelid = f.oid AND k.contype = 'c'
    WHERE NOT f.own AND f.checked
    UNION ALL
    SELECT f.at, 'index', c.relname::text, c.tableoid, c.oid, x.tree
    FROM found AS f
    JOIN pg_catalog.pg_index AS i ON i.indrelid = f.oid
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    CROSS JOIN LATERAL (VALUES (i.indexprs), (i.indpred)) AS x (tree)
    WHERE NOT f.own
    UNION ALL
    SELECT f.at, 'statistics', s.stxname::text, s.tableoid, s.oid, NULL
    FROM found AS f
    JOIN pg_catalog.pg_statistic_ext AS s ON s.stxrelid = f.oid
    WHERE NOT f.own AND f.event <> 4
)
SELECT v.reason, v.name, f.owner, f.at
FROM found AS f
CROSS JOIN LATERAL (VALUES
    ('stranger', '', NOT f.own),
    ('kind', '', f.relkind <> 'r' AND (f.event <> 0 OR NOT f.own)),
    ('partition', '', f.relispartition AND NOT f.own AND (f.event = 8 OR f.checked)),
    ('schema', pg_catalog.pg_get_userbyid(f.nspowner)::text, f.replaceable AND (f.event <> 0 OR NOT f.own))
) AS v (reason, name, fits)
WHERE v.fits
UNION ALL
SELECT 'type', a.attname::text, f.owner, f.at
FROM found AS f
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = f.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type AS y ON y.oid = a.atttypid
WHERE NOT f.own AND (y.typowner NOT IN (SELECT t.oid FROM trusted AS t)
    OR f.event = 4 AND (y.typtype <> 'b' OR y.typnamespace <> 'pg_catalog'::regnamespace::oid))
UNION ALL
SELECT 'column', l.name, f.owner, f.at FROM found AS f CROSS JOIN pg_catalog.unnest(f.lacking) AS l (name)
UNION ALL
SELECT 'rule', r.rulename::text, f.owner, f.at
FROM found AS f
JOIN pg_catalog.pg_rewrite AS r ON r.ev_class = f.oid
WHERE NOT f.own AND r.ev_type::text = CASE f.event WHEN 4 THEN '3' WHEN 8 THEN '4' WHEN 16 THEN '2' END
UNION ALL
SELECT CASE
        WHEN f.event <> 4 OR f.own OR c.relkind <> 'r' OR c.relhassubclass OR c.relchecks <> 0
            OR current_setting('server_version_num')::int < 180000
            OR EXISTS (SELECT FROM pg_catalog.pg_statistic_ext AS s WHERE s.stxrelid = c.oid)
            OR EXISTS (
                SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid
                  AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR 16384::oid <= ANY (i.indclass))
            ) THEN 'reference'
        ELSE 'key'
    END, k.conname::text, f.owner, f.at
FROM found AS f
JOIN pg_catalog.pg_constraint AS k
    ON f.oid = CASE f.event WHEN 4 THEN k.conrelid WHEN 8 THEN k.confrelid WHEN 16 THEN k.confrelid END
JOIN pg_catalog.pg_class AS c ON c.oid IN (k.conrelid, k.confrelid) AND c.oid <> f.oid
WHERE c.relowner NOT IN (SELECT t.oid FROM trusted AS t)
UNION ALL
SELECT 'policy', coalesce(p.polname::text, ''), f.owner, f.at
FROM found AS f
LEFT JOIN pg_catalog.pg_policy AS p ON p.polrelid = f.oid
WHERE NOT f.own AND pg_catalog.row_security_active(f.oid) AND (f.event = 4 OR p.oid IS NOT NULL)
UNION ALL
SELECT e.kind, e.name, f.owner, f.at
FROM found AS f
JOIN code AS e ON e.at = f.at
WHERE (e.kind = 'trigger' AND NOT f.own) OR EXISTS (
    SELECT FROM pg_catalog.pg_depend AS d
    LEFT JOIN pg_catalog.pg_class AS c ON c.tableoid = d.refclassid AND c.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_proc AS p ON p.tableoid = d.refclassid AND p.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_type AS y ON y.tableoid = d.refclassid AND y.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_operator AS o ON o.tableoid = d.refclassid AND o.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_opclass AS k ON k.tableoid = d.refclassid AND k.oid = d.refobjid
    CROSS JOIN LATERAL (VALUES (coalesce(p.proowner, y.typowner, o.oprowner, k.opcowner))) AS w (owner)
    WHERE d.classid = e.catalog AND d.objid = e.oid AND (
        c.relkind = 'S' AND c.relowner <> f.relowner
        OR w.owner NOT IN (SELECT t.oid FROM trusted AS t)
        OR w.owner IS NOT NULL AND f.event = 4 AND NOT f.own
    )
) OR CASE
    WHEN (SELECT sum(pg_catalog.pg_column_size(m.tree)) FROM code AS m WHERE m.at = f.at) > 16384 THEN true
    WHEN e.tree::text ~ '[:]((?!consttype|location)\w+ 2205|(?!location)\w+ 2210)\M' THEN true
    ELSE EXISTS (
        SELECT FROM regexp_matches(e.tree::text, '[:][a-z]*funcid (\d+)', 'g') AS m (ids)
        JOIN pg_catalog.pg_proc AS p ON p.oid = m.ids[1]::oid
        WHERE p.pronamespace = 'pg_catalog'::regnamespace::oid
          AND (p.provolatile <> 'i' OR p.proname = 'satisfies_hash_partition') AND p.proname NOT IN (
              'nextval', 'now', 'clock_timestamp', 'statement_timestamp', 'transaction_timestamp', 'timezone',
              'timestamp', 'timestamptz', 'gen_random_uuid', 'uuidv4', 'uuidv7', 'random', 'pg_trigger_depth')
    )
END
