SELECT t.table_name
FROM all_tables t
WHERE t.owner = COALESCE(?, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND t.table_name = ?
