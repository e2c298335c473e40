-- session.sql · PostgreSQL · how a session is set up, and what is tried behind a savepoint

-- name: session
-- the settings of a connection
-- in: lock timeout, statement timeout (milliseconds), a mark     out: number of the server's process, and what was set
-- The plans are pinned: a queue table's statistics are stale by nature (empty at night, a million rows at
-- noon), and a claim that flips to a scan with a sort costs the whole backlog. A claim is held while Spark
-- works, so no timeout of the server for idle sessions (from version 14 on, one holds a stage), idle or long
-- transactions (from 17 on) must end it. Under a stricter isolation a claim would fail on every row that another
-- receiver takes meanwhile. Keepalives: the server frees the rows of a machine that vanished without a word after two
-- minutes; by default it takes two hours. A commit is
-- answered only when it is on the disk, whatever the database, the login or the url says: rows that were sent and then
-- taken back by a crash would be lost, for their source is deleted. What asks for more (remote_apply) stays. By the number
-- of the process and the mark a connection pooler that shares sessions is noticed.
SELECT pg_backend_pid(),
       set_config('lock_timeout', ?::text, false),
       set_config('statement_timeout', ?::text, false),
       set_config('sqlqueue.session', ?::text, false),
       set_config('idle_in_transaction_session_timeout', '0', false),
       (SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'),
       (SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'idle_session_timeout'),
       set_config('tcp_keepalives_idle', '60', false),
       set_config('tcp_keepalives_interval', '10', false),
       set_config('tcp_keepalives_count', '6', false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
           WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false),
       set_config('jit', 'off', false)

-- name: lock_timeout
-- how long a statement waits for a lock, until the transaction ends
-- in: milliseconds
SELECT set_config('lock_timeout', ?::text, true)

-- name: backend
-- which session of the server a transaction runs on
-- out: number of its process, the mark that session has left there
-- Asked only where a connection pooler stands between; see connections/poolers.py.
SELECT pg_backend_pid(), current_setting('sqlqueue.session', true)

-- name: attempt_begin
-- begins a part of the transaction that can be undone alone
-- What fails behind a savepoint leaves the locks that were taken before it.
SAVEPOINT attempt

-- name: attempt_unhurried
-- lets the statements of an attempt take as long as they need
-- Until the savepoint is undone or the transaction ends. Locks are waited for no longer than before.
SELECT set_config('statement_timeout', '0', true)

-- name: attempt_check
-- lets fail now what would make the commit fail
-- A commit that fails ends the transaction, and every lock with it.
SET CONSTRAINTS ALL IMMEDIATE

-- name: attempt_state
-- nothing to ask: an error behind a savepoint never ends the transaction

-- name: attempt_undo
-- undoes an attempt that failed
-- What was locked before it stays locked.
ROLLBACK TO SAVEPOINT attempt
