-- inspect.sql · PostgreSQL · how a queue table is set up, and what puts right what is wrong with it

-- name: indexes
-- Returns the key columns of a table's indexes.
-- out: index, key column (NULL for an expression), unique, kind, filter
-- There is one row for each key column, in their order. The statement leaves out an index that is not valid,
-- because it serves no query.
SELECT c.relname::text, a.attname::text, i.indisunique, m.amname::text, pg_get_expr(i.indpred, i.indrelid)
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, position)
LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = :object_id::oid AND i.indisvalid AND k.position <= i.indnkeyatts
ORDER BY c.relname, k.position

-- name: index_names
-- Returns the names that a new index cannot have.
-- Every relation of the schema counts, because indexes share their names with tables.
SELECT c.relname::text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_class AS q ON q.relnamespace = c.relnamespace
WHERE q.oid = :object_id::oid

-- name: space
-- Returns how much of a table is dead.
-- out: pages, live rows, dead rows, seconds since it was last vacuumed (NULL: never)
-- The numbers of rows are those of the statistics. Pages do not count against a table here, because an index
-- finds the rows.
SELECT pg_relation_size(s.relid::regclass) / current_setting('block_size')::bigint,
       s.n_live_tup,
       s.n_dead_tup,
       extract(epoch FROM statement_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::bigint
FROM pg_catalog.pg_stat_all_tables AS s
WHERE s.relid = :object_id::oid

-- name: numbers
-- Returns what numbers the rows of a table.
-- out: schema and name of the sequence, last number (NULL: unknown), highest number
-- The column's default names a serial's sequence; an identity's sequence belongs to the column. The column's
-- own type may end before the sequence does. Only a user with USAGE or SELECT on the sequence may see the
-- last number.
WITH numbered AS (
    SELECT p.refobjid AS sequence, d.adrelid AS queue, d.adnum AS attnum
    FROM pg_catalog.pg_attrdef AS d
    JOIN pg_catalog.pg_depend AS p ON p.classid = 'pg_attrdef'::regclass::oid AND p.objid = d.oid
    WHERE d.adrelid = :object_id::oid AND p.refclassid = 'pg_class'::regclass::oid
    UNION
    SELECT p.objid, p.refobjid, p.refobjsubid
    FROM pg_catalog.pg_depend AS p
    WHERE p.refobjid = :object_id::oid AND p.classid = 'pg_class'::regclass::oid
        AND p.refclassid = 'pg_class'::regclass::oid
      AND p.deptype IN ('a', 'i')
)
SELECT n.nspname::text,
       c.relname::text,
       CASE WHEN has_sequence_privilege(c.oid, 'USAGE, SELECT')
           THEN pg_sequence_last_value(c.oid::regclass) END,
       least(s.seqmax, CASE a.atttypid WHEN 'integer'::regtype::oid THEN 2147483647 ELSE s.seqmax END)
FROM numbered
JOIN pg_catalog.pg_attribute AS a
    ON a.attrelid = numbered.queue AND a.attnum = numbered.attnum AND a.attname = 'seq'
JOIN pg_catalog.pg_sequence AS s ON s.seqrelid = numbered.sequence
JOIN pg_catalog.pg_class AS c ON c.oid = s.seqrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace

-- name: settings
-- Returns the settings of a table that matter to a queue.
SELECT v.name, v.value
FROM pg_catalog.pg_class AS c
CROSS JOIN LATERAL (
    VALUES ('write-ahead log', CASE c.relpersistence WHEN 'p' THEN 'on' ELSE 'off' END),
           ('fsync', current_setting('fsync')),
           ('autovacuum', CASE WHEN current_setting('autovacuum')::boolean AND coalesce((
               SELECT o.option_value::boolean
               FROM pg_catalog.pg_options_to_table(c.reloptions) AS o
               WHERE o.option_name = 'autovacuum_enabled'
           ), true) THEN 'on' ELSE 'off' END),
           ('row security', CASE WHEN row_security_active(c.oid) THEN 'on' ELSE 'off' END)
) AS v (name, value)
WHERE current_database() = :database AND c.oid = :object_id::oid

-- name: stopping_row
-- Returns the first row at the head of a queue that stops its .NET endpoints.
-- out: seq, row id, whether it has no body (else its headers are the JSON null), its headers, those of the
--     row behind it, the database's clock in UTC
-- An endpoint that receives this row fails, gives the row back, and receives it
-- again. So the row stands at the head, as far as others hold no rows there, and the statement reads only the
-- first 10,000 rows, by the index on seq. What is in row tells that a body is NULL and how long headers are,
-- so nothing large is fetched.
SELECT f.seq::bigint,
       f.id::text,
       f.bodyless,
       CASE WHEN octet_length(q.headers::text) <= 1000000 THEN q.headers::text END,
       (
           SELECT CASE WHEN octet_length(b.headers::text) <= 1000000 THEN b.headers::text END
           FROM ONLY {queue} AS b
           WHERE b.seq > f.seq
           ORDER BY b.seq
           LIMIT 1
       ),
       statement_timestamp() AT TIME ZONE 'UTC'
FROM (
    SELECT seq,
           id,
           body IS NULL AS bodyless,
           octet_length(headers::text) = 4 AND headers::text = 'null' AS headless
    FROM ONLY {queue}
    ORDER BY seq
    LIMIT 10000
) AS f
JOIN ONLY {queue} AS q ON q.seq = f.seq
WHERE f.bodyless OR f.headless
ORDER BY f.seq
LIMIT 1

-- name: open_transactions
-- Returns the oldest transactions of this database that have been open for long and stop the cleanup, and the
-- replication slots that stop it.
-- in: how many seconds are long     out: what it costs, session (NULL: a prepared transaction, or a slot),
--     login (NULL: a slot), host, program, since when in UTC (NULL: a slot), the database's clock in UTC
-- While a transaction has a snapshot or has written (backend_xmin, backend_xid), the indexes keep the entries
-- of rows that others delete, and every look at the head of a queue reads them. One that has only read and
-- sleeps keeps nothing. A slot has a snapshot (xmin) where its standby sends feedback. The server does not
-- tell since when, so a slot counts that no standby reads from, or whose snapshot is 100,000 transactions
-- old; one that is lost keeps nothing. A login without pg_read_all_stats sees since when only for sessions of
-- its own user, and no others come here.
SELECT 'every queue of the database gets slower: indexes keep the entries of rows that others delete',
       t.session, t.login, t.host, t.program, t.since AT TIME ZONE 'UTC',
           statement_timestamp() AT TIME ZONE 'UTC'
FROM (
    SELECT a.pid AS session, a.usename::text AS login, host(a.client_addr) AS host,
        a.application_name AS program,
           a.xact_start AS since, false AS slot
    FROM pg_catalog.pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
      AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
    UNION ALL
    SELECT NULL, p.owner::text, NULL, 'prepared transaction ' || p.gid, p.prepared, false
    FROM pg_catalog.pg_prepared_xacts AS p
    WHERE p.database = current_database()
    UNION ALL
    SELECT NULL, NULL, NULL, 'replication slot ' || s.slot_name::text, NULL, true
    FROM pg_catalog.pg_replication_slots AS s
    WHERE s.xmin IS NOT NULL AND s.wal_status <> 'lost' AND (NOT s.active OR age(s.xmin) >= 100000)
) AS t
WHERE t.slot OR t.since <= statement_timestamp() - make_interval(secs => :seconds::double precision)
ORDER BY t.since
LIMIT 10

-- name: unidentified
-- Returns the tables of publications whose rows the server lets no session change or delete.
-- A subscriber could not tell which row it was: the table has no primary key that holds at once, and no other
-- replica identity. What wal_level says does not count.
SELECT DISTINCT n.nspname::text, c.relname::text
FROM pg_catalog.pg_publication AS p
JOIN pg_catalog.pg_publication_tables AS t ON t.pubname = p.pubname
JOIN pg_catalog.pg_namespace AS n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE (p.pubupdate OR p.pubdelete) AND c.relreplident <> 'f'
  AND NOT EXISTS (
      SELECT FROM pg_catalog.pg_index AS i
      WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
        AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END
  )

-- name: remedy_autovacuum
-- A remedy for people: lets the server free the room of deleted rows.
ALTER TABLE {queue} RESET (autovacuum_enabled);

-- none: remedy_compatibility · no statement does it: the server must be upgraded.
-- none: remedy_durability · every session of this package sets synchronous_commit for itself.

-- name: remedy_fsync
-- A remedy for people: makes the server write to the disk what is committed, in every database of the server.
ALTER SYSTEM SET fsync = on; SELECT pg_catalog.pg_reload_conf();

-- none: remedy_headers · a database keeps every letter, or refuses it.
-- none: remedy_index_expires · the classic table has no such index, and no statement goes by it.

-- name: remedy_index_row_version
-- A remedy for people: creates the index that receiving goes by.
-- CONCURRENTLY blocks no session; it cannot run inside a transaction.
CREATE UNIQUE INDEX CONCURRENTLY {index} ON {queue} (seq);

-- name: remedy_key
-- A remedy for people: gives a table a primary key, so that a publication may have it.
ALTER TABLE {queue} ADD PRIMARY KEY ({key});

-- none: remedy_lock_escalation · row locks lie in the rows and never escalate.

-- name: remedy_numbers
-- A remedy for people: gives numbers for the next centuries.
-- The server writes every row anew, and all sessions wait meanwhile. It is quick with a short queue.
ALTER SEQUENCE {sequence} AS bigint;
ALTER TABLE {queue} ALTER COLUMN seq TYPE bigint;

-- name: remedy_space
-- A remedy for people: frees the room of dead rows, beside running receivers.
VACUUM {queue};

-- name: remedy_stopping_row
-- A remedy for people: gives rows without a body an empty one, and those whose headers are the JSON null no
-- headers. It waits for each session that holds a row like that, and reads the whole queue.
UPDATE {queue}
SET body = coalesce(body, ''),
    headers = CASE WHEN headers OPERATOR(pg_catalog.=) 'null' THEN '{{}}' ELSE headers END
WHERE body IS NULL OR headers OPERATOR(pg_catalog.=) 'null';

-- name: remedy_transaction
-- A remedy for people: ends a session, and rolls its transaction back.
SELECT pg_catalog.pg_terminate_backend(:session);

-- name: remedy_write_ahead_log
-- A remedy for people: makes a table's rows outlive a crash of the server. Costs as in remedy_numbers.
ALTER TABLE {queue} SET LOGGED;
