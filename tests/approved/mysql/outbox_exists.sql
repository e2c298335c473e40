SELECT t.table_name
FROM information_schema.tables AS t
WHERE t.table_schema = COALESCE(?, DATABASE()) AND t.table_name = ? AND t.table_type = 'BASE TABLE'
