ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();
