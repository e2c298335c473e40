SELECT 'server version', current_setting('server_version_num')::int / 10000, 13
