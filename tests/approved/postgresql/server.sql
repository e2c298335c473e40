SELECT session_user::text, current_database()::text, 'PostgreSQL ' || current_setting('server_version')
