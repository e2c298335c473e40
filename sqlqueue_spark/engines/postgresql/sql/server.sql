-- server.sql · PostgreSQL · who we are to the server, and what it is
-- out: login, database, product and version
SELECT session_user::text, current_database()::text, 'PostgreSQL ' || current_setting('server_version')
