-- holders.sql · SQL Server · who holds locks on rows of a table
-- in: object id of the table, first RowVersion, last RowVersion, database     out: session, login, host, program
-- Locks are named by hashes, so the range cannot be told from them and only stands here as in the twin. Needs
-- VIEW SERVER STATE; without it the caller says that it may not look. Only locks of this database: the numbers of
-- tables' parts are the same in others, and a session named here may be ended by whoever reads its name.
SELECT DISTINCT s.session_id, s.login_name, s.host_name, s.program_name
FROM sys.dm_tran_locks AS l
JOIN {catalog}.sys.partitions AS p ON p.hobt_id = l.resource_associated_entity_id
JOIN sys.dm_exec_sessions AS s ON s.session_id = l.request_session_id
WHERE l.resource_type IN ('KEY', 'RID') AND l.request_status = 'GRANT' AND l.request_mode IN ('U', 'X')
  AND s.session_id <> @@SPID AND p.object_id = ? AND ? <= ?
  AND l.resource_database_id = DB_ID(?)
