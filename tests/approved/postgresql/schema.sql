SELECT nspname::text FROM pg_catalog.pg_namespace WHERE nspname = ?
