-- outbox_exists.sql · Oracle · whether an outbox table is there
-- in: schema (NULL: the current one), table     out: its name
SELECT t.table_name
FROM all_tables t
WHERE t.owner = COALESCE(?, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND t.table_name = ?
