-- session.sql · PostgreSQL · how a session is set up, and what is tried behind a savepoint

-- name: session
-- Sets the settings of a connection.
-- in: lock timeout, statement timeout (milliseconds), a mark
-- out: number of the server's process, in which encoding texts travel, what else was set, and last
--     synchronous_commit and search_path
-- The settings pin the plans. A queue table's statistics are stale by nature (empty at night, a million rows
-- at noon), and a claim whose plan flips to a scan with a sort costs the whole backlog. A plan is made once
-- for all values, and not five times. No timeout of the server may end a session that holds something: with a
-- claim it is idle in a long transaction (timeout for long ones from version 17 on), with a stage it is idle
-- (from version 14 on). READ COMMITTED: under a stricter isolation, a claim would fail on every row that
-- another receiver takes meanwhile. Keepalives: an idle session's rows are free 45 s after its machine
-- vanished, but while a statement runs Linux sends none. Nor does it while an answer is under way:
-- tcp_user_timeout ends that, which would take a quarter of an hour. Readers, whose statements have no
-- timeout, do without: it would end an answer whose reader waits for Spark. synchronous_commit: the server
-- answers a commit only when it is on the disk, whatever the url says: sent rows that a crash took back would
-- be lost, because their source is deleted. A setting that asks for more (remote_apply) stays. By the
-- process's number and the mark we notice a pooler.
-- From DateStyle on: what texts and names mean, whatever the database or the login says. Names are the
-- server's own first. Behind it stand the schemas that triggers of the queues may need, but none in which
-- everyone may create functions, and temporary tables and types come last. This statement itself names
-- everything in full, because it comes before. In all others no function or operator of another schema is
-- ever chosen: each is called with the very types of the server's own one, which wins then, or, where the
-- server's own takes any type, is named in full. A better match behind it would win: lower(name) before
-- lower(text), "varchar = text" before "text = text".
-- client_encoding: texts travel in UTF-8, whatever the url says. A database without an encoding would refuse
-- to return a text that is no UTF-8, so its texts travel as the bytes that they are.
SELECT pg_catalog.pg_backend_pid(),
       pg_catalog.set_config('client_encoding', CASE
           WHEN pg_catalog.current_setting('server_encoding') OPERATOR(pg_catalog.=) 'SQL_ASCII'
               THEN 'SQL_ASCII'
           ELSE 'UTF8'
       END, false),
       pg_catalog.set_config('lock_timeout', :lock_timeout::pg_catalog.text, false),
       pg_catalog.set_config('statement_timeout', :statement_timeout::pg_catalog.text, false),
       pg_catalog.set_config('sqlqueue.session', :mark::pg_catalog.text, false),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '0', false),
       CASE WHEN pg_catalog.current_setting('transaction_timeout', true) IS NOT NULL
           THEN pg_catalog.set_config('transaction_timeout', '0', false)
       END,
       CASE WHEN pg_catalog.current_setting('idle_session_timeout', true) IS NOT NULL
           THEN pg_catalog.set_config('idle_session_timeout', '0', false)
       END,
       pg_catalog.set_config('tcp_keepalives_idle', '30', false),
       pg_catalog.set_config('tcp_keepalives_interval', '5', false),
       pg_catalog.set_config('tcp_keepalives_count', '3', false),
       pg_catalog.set_config('tcp_user_timeout', CASE
           WHEN :statement_timeout OPERATOR(pg_catalog.=) 0 THEN '0'
           ELSE '45000'
       END, false),
       pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
       pg_catalog.set_config('enable_seqscan', 'off', false),
       pg_catalog.set_config('enable_bitmapscan', 'off', false),
       pg_catalog.set_config('enable_hashjoin', 'off', false),
       pg_catalog.set_config('enable_mergejoin', 'off', false),
       pg_catalog.set_config('jit', 'off', false),
       pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false),
       pg_catalog.set_config('DateStyle', 'ISO, YMD', false),
       pg_catalog.set_config('IntervalStyle', 'postgres', false),
       pg_catalog.set_config('TimeZone', 'UTC', false),
       pg_catalog.set_config('extra_float_digits', '1', false),
       pg_catalog.set_config('bytea_output', 'hex', false),
       pg_catalog.set_config('array_nulls', 'on', false),
       pg_catalog.set_config('standard_conforming_strings', 'on', false),
       pg_catalog.set_config('quote_all_identifiers', 'off', false),
       pg_catalog.set_config('synchronous_commit', CASE
           WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'remote_apply'
               THEN 'remote_apply'
           ELSE 'on'
       END, false),
       pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', 'pg_catalog', (
           SELECT pg_catalog.string_agg(pg_catalog.quote_ident(n.nspname), ', ' ORDER BY p.position)
           FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS p (name, position)
           JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) p.name
           WHERE n.nspname OPERATOR(pg_catalog.<>) 'pg_catalog'
             AND n.oid OPERATOR(pg_catalog.<>) pg_catalog.pg_my_temp_schema()
             AND NOT pg_catalog.has_schema_privilege('public', n.oid, 'CREATE')
       ), 'pg_temp'), false)

-- name: lock_timeout
-- Sets how long a statement waits for a lock, until the transaction ends.
-- in: milliseconds
SELECT set_config('lock_timeout', :lock_timeout::text, true)

-- name: statement_timeout
-- Sets how long a statement may take, until the savepoint is undone or the transaction ends.
-- in: milliseconds; 0 for as long as it needs
SELECT set_config('statement_timeout', :statement_timeout::text, true)

-- name: backend
-- Returns which session of the server a transaction runs on.
-- out: number of its process, the mark that the statement session has left there
-- We ask only where a connection pooler stands between; see engines/postgresql/poolers.py.
SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('sqlqueue.session', true)

-- name: attempt_begin
-- Begins a part of the transaction that can be undone alone.
-- An error behind a savepoint leaves the locks that were taken before it. {attempt} tells attempts apart of
-- which one is part of another.
SAVEPOINT {attempt}

-- name: attempt_check
-- Ends an attempt that went well, or makes it fail where the commit would fail.
-- The check must come now: a commit that fails ends the transaction, and frees every lock.
SET CONSTRAINTS ALL IMMEDIATE

-- none: attempt_state · an error behind a savepoint never ends the transaction.

-- name: attempt_undo
-- Undoes an attempt that failed.
-- Rows that were locked before the attempt stay locked.
ROLLBACK TO SAVEPOINT {attempt}
