-- send.sql · PostgreSQL · what a sender says to a queue table

-- name: isolation_read_committed
-- Isolates the transactions of a connection: a statement sees what was committed when it began.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: isolation_repeatable_read
-- Isolates the transactions of a connection: what a transaction has read stays as it was.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: isolation_serializable
-- Isolates the transactions of a connection: they act as if one ran after the other.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE

-- name: isolation_snapshot
-- Isolates the transactions of a connection: a transaction sees what was committed when it began.
-- PostgreSQL calls this REPEATABLE READ, which is a snapshot here.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: insert
-- Sends messages.
-- in: COPY's binary stream of Ids, times of expiry, headers, bodies     out: number of rows
-- The sender needs INSERT on the table and USAGE on its sequence, but not SELECT. Rows get their seq in the
-- order of the stream. COPY is nearly twice as fast as INSERT … SELECT FROM unnest(…). The tables have no
-- optional columns here.
COPY {queue} (id, expires, headers, body) FROM STDIN (FORMAT binary)

-- name: insert_by_policy
-- Sends messages to a queue, or stores them in a table of delayed messages, where row security is active.
-- in: arrays of Ids, times of expiry or delivery, headers, bodies     out: number of rows
-- The server refuses COPY there. {columns} are those of the table, and {values} what they get: the columns of
-- the same names, but the time of expiry where a table of delayed messages has due.
INSERT INTO {queue} ({columns})
SELECT {values}
FROM unnest(:ids::uuid[], :expires::timestamp[], :headers::text[], :bodies::bytea[]) WITH ORDINALITY
    AS m (id, expires, headers, body, number)
ORDER BY number

-- name: code_lock
-- Keeps a table from getting new code until the transaction ends.
-- Each command that gives a table a trigger, a rule, a policy, a default, a check, an owner or another name
-- waits for this lock, and so does the use of a new index. It takes no snapshot, so that what is looked at
-- next was committed before the lock was granted, whatever the isolation. INSERT is the right that it takes.
LOCK TABLE ONLY {queue} IN ROW EXCLUSIVE MODE

-- name: look_lock
-- Does so for a login that may only look, but for triggers and indexes.
LOCK TABLE ONLY {queue} IN ACCESS SHARE MODE

-- name: foreign_code
-- Returns why rows may not be put into a table that no option names, or deleted, or looked at.
-- in: schema, table, object ids of tables whose owners are trusted, the columns that it must have (each with
--     a blank and each type that it may have), the event as a bit of pg_trigger.tgtype (4: INSERT, 8: DELETE)
--     or 0: a look
-- out: reason, what it is about, the table's owner
-- Trusted are this login, the owners of these tables, superusers and the database's owner. A table of any of
-- them may have code. But the right to create a trigger can be given away, so what it calls must be theirs
-- too. A table of anyone else may run no code: what an expression calls must be the server's own, and either
-- depend on nothing but its arguments or be named here, because query_to_xml and others run any text as a
-- query. Such a function stands in no dependency, so it is read out of the expression's tree, where all of
-- them together are not too large. A sequence belongs to the table's owner, or this login would use up the
-- numbers of another queue; 2205 is regclass and 2210 an array of these, by which a text could name one. A
-- look and a delete run policies for each row, and casts where a column has a type of a stranger. When they
-- are planned, the server computes what it can of the expressions of indexes, of statistics and, if told so,
-- of checks; what trusted owners have made may stand there. Who owns a schema and may create schemas can
-- rename it, and put another in its place, which no lock on the table prevents.
WITH trusted AS (
    {trusted}
    UNION ALL
    SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid IN (
        SELECT w.id::oid FROM pg_catalog.unnest(:trusted::text[]) AS w (id)
    )
), found AS (
    SELECT c.oid, c.relkind, c.relispartition, c.relrowsecurity, c.relowner, n.nspowner,
        c.relowner IN (SELECT t.oid FROM trusted AS t) AS own,
        pg_catalog.pg_get_userbyid(c.relowner)::text AS owner
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relname = :name
), code AS (
    SELECT 'trigger' AS kind, g.tgname::text AS name, 'pg_catalog.pg_trigger'::regclass::oid AS catalog,
        g.oid, g.tgqual AS tree
    FROM found AS f
    JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = f.oid
    WHERE NOT g.tgisinternal AND (g.tgtype::int & :event::int) <> 0
    UNION ALL
    SELECT 'default', a.attname::text, 'pg_catalog.pg_attrdef'::regclass::oid, d.oid, d.adbin
    FROM found AS f
    JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = f.oid
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    WHERE NOT f.own AND :event = 4
    UNION ALL
    SELECT 'constraint', k.conname::text, 'pg_catalog.pg_constraint'::regclass::oid, k.oid, k.conbin
    FROM found AS f
    JOIN pg_catalog.pg_constraint AS k ON k.conrelid = f.oid
    WHERE NOT f.own AND k.contype <> 'f'
      AND (:event = 4 OR current_setting('constraint_exclusion') = 'on')
    UNION ALL
    SELECT 'index', c.relname::text, 'pg_catalog.pg_class'::regclass::oid, c.oid, x.tree
    FROM found AS f
    JOIN pg_catalog.pg_index AS i ON i.indrelid = f.oid
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    CROSS JOIN LATERAL (VALUES (i.indexprs), (i.indpred)) AS x (tree)
    WHERE NOT f.own
    UNION ALL
    SELECT 'statistics', s.stxname::text, 'pg_catalog.pg_statistic_ext'::regclass::oid, s.oid, NULL
    FROM found AS f
    JOIN pg_catalog.pg_statistic_ext AS s ON s.stxrelid = f.oid
    WHERE NOT f.own AND :event <> 4
)
SELECT 'kind', '', f.owner
FROM found AS f
WHERE f.relkind <> 'r'
UNION ALL
SELECT 'partition', '', f.owner
FROM found AS f
WHERE f.relispartition AND NOT f.own AND :event <> 0
UNION ALL
SELECT 'schema', pg_catalog.pg_get_userbyid(f.nspowner)::text, f.owner
FROM found AS f
WHERE f.nspowner NOT IN (SELECT t.oid FROM trusted AS t) AND (:event <> 0 OR NOT f.own) AND EXISTS (
    SELECT FROM pg_catalog.pg_roles AS r
    WHERE pg_catalog.pg_has_role(r.oid, f.nspowner, 'MEMBER')
      AND pg_catalog.has_database_privilege(r.oid, current_database(), 'CREATE')
      AND r.oid NOT IN (SELECT t.oid FROM trusted AS t)
)
UNION ALL
SELECT DISTINCT 'column', split_part(w.typed, ' ', 1), f.owner
FROM found AS f
CROSS JOIN pg_catalog.unnest(:columns::text[]) AS w (typed)
WHERE NOT EXISTS (
    SELECT FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = f.oid AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attname = split_part(w.typed, ' ', 1)
      AND a.attname::text || ' ' || pg_catalog.format_type(a.atttypid, NULL) = ANY (:columns::text[])
)
UNION ALL
SELECT 'type', a.attname::text, f.owner
FROM found AS f
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = f.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type AS y ON y.oid = a.atttypid
WHERE NOT f.own AND CASE
    WHEN :event = 4 THEN y.typtype <> 'b' OR y.typnamespace <> 'pg_catalog'::regnamespace::oid
    ELSE y.typowner NOT IN (SELECT t.oid FROM trusted AS t)
END
UNION ALL
SELECT 'rule', r.rulename::text, f.owner
FROM found AS f
JOIN pg_catalog.pg_rewrite AS r ON r.ev_class = f.oid
WHERE NOT f.own AND r.ev_type::text = CASE WHEN :event = 8 THEN '4' WHEN :event = 4 THEN '3' END
UNION ALL
SELECT 'policy', '', f.owner
FROM found AS f
WHERE NOT f.own AND CASE WHEN :event = 4 THEN f.relrowsecurity
    ELSE pg_catalog.row_security_active(f.oid) END
UNION ALL
SELECT e.kind, e.name, f.owner
FROM found AS f
CROSS JOIN code AS e
WHERE (e.kind = 'trigger' AND NOT f.own) OR EXISTS (
    SELECT FROM pg_catalog.pg_depend AS d
    LEFT JOIN pg_catalog.pg_proc AS p
        ON d.refclassid = 'pg_catalog.pg_proc'::regclass::oid AND p.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_type AS y
        ON d.refclassid = 'pg_catalog.pg_type'::regclass::oid AND y.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_operator AS o
        ON d.refclassid = 'pg_catalog.pg_operator'::regclass::oid AND o.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_opclass AS k
        ON d.refclassid = 'pg_catalog.pg_opclass'::regclass::oid AND k.oid = d.refobjid
    LEFT JOIN pg_catalog.pg_class AS c
        ON d.refclassid = 'pg_catalog.pg_class'::regclass::oid AND c.oid = d.refobjid
    WHERE d.classid = e.catalog AND d.objid = e.oid
      AND (c.relkind = 'S' AND c.relowner <> f.relowner OR d.refclassid IN (
          'pg_catalog.pg_proc'::regclass::oid, 'pg_catalog.pg_type'::regclass::oid,
          'pg_catalog.pg_operator'::regclass::oid, 'pg_catalog.pg_opclass'::regclass::oid
      ))
      AND NOT ((f.own OR :event <> 4) AND coalesce(p.proowner, y.typowner, o.oprowner, k.opcowner, 0) IN (
          SELECT t.oid FROM trusted AS t
      ))
) OR CASE
    WHEN (SELECT sum(pg_catalog.pg_column_size(m.tree)) FROM code AS m) > 16384 THEN true
    WHEN e.tree::text ~ '[:]((?!consttype|location)\w+ 2205|(?!location)\w+ 2210)\M' THEN true
    ELSE EXISTS (
        SELECT FROM regexp_matches(e.tree::text, '[:][a-z]*funcid (\d+)', 'g') AS m (ids)
        JOIN pg_catalog.pg_proc AS p ON p.oid = m.ids[1]::oid
        WHERE p.pronamespace = 'pg_catalog'::regnamespace::oid AND p.provolatile <> 'i'
          AND p.proname NOT IN ('nextval', 'now', 'clock_timestamp', 'statement_timestamp',
              'transaction_timestamp', 'timezone', 'timestamp', 'timestamptz', 'gen_random_uuid', 'uuidv4',
              'uuidv7', 'random', 'pg_trigger_depth')
    )
END
