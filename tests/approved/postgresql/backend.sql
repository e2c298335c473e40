SELECT pg_backend_pid(), current_setting('sqlqueue.session', true)
