-- compatibility.sql · PostgreSQL · whether the server knows all that is said to it
-- out: what is counted, how far it goes, how far it must go
SELECT 'server version', current_setting('server_version_num')::int / 10000, 13
