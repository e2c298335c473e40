SELECT DISTINCT s.session_id, s.login_name, s.host_name, s.program_name
FROM sys.dm_tran_locks AS l
JOIN [shop].sys.partitions AS p ON p.hobt_id = l.resource_associated_entity_id
JOIN sys.dm_exec_sessions AS s ON s.session_id = l.request_session_id
WHERE l.resource_type IN ('KEY', 'RID') AND l.request_status = 'GRANT' AND l.request_mode IN ('U', 'X')
  AND s.session_id <> @@SPID AND p.object_id = ? AND ? <= ?
  AND l.resource_database_id = DB_ID(?)
