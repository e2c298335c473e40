-- session.sql · PostgreSQL · the settings of a connection
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
