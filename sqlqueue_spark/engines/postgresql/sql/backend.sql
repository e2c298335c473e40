-- backend.sql · PostgreSQL · which session of the server a transaction runs on
-- out: number of its process, the mark that session.sql has left there
-- Asked only where a connection pooler stands between; see connections/poolers.py.
SELECT pg_backend_pid(), current_setting('sqlqueue.session', true)
