-- outbox_exists.sql · MySQL · whether an outbox table is there
-- in: schema (a database here; NULL: the one we are connected to), table     out: its name
SELECT t.table_name
FROM information_schema.tables AS t
WHERE t.table_schema = COALESCE(?, DATABASE()) AND t.table_name = ? AND t.table_type = 'BASE TABLE'
