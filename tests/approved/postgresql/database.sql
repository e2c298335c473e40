SELECT current_database()::text, pg_is_in_recovery()
