-- settings.sql · SQL Server · how a table and its database are set up, as far as it matters to a queue
-- in: database, object id of the table     out: setting, value
-- A code page of 65001 is UTF-8. COLLATE: the catalogue's columns have collations of their own.
SELECT v.name, v.value
FROM {catalog}.sys.tables AS t
LEFT JOIN sys.databases AS d ON d.name = ?
LEFT JOIN {catalog}.sys.columns AS c ON c.object_id = t.object_id AND c.name = N'Headers'
CROSS APPLY (
    VALUES (N'lock escalation', t.lock_escalation_desc COLLATE DATABASE_DEFAULT),
           (N'read committed snapshot', CASE d.is_read_committed_snapshot_on WHEN 1 THEN N'on' WHEN 0 THEN N'off' END),
           (N'snapshot isolation', LOWER(d.snapshot_isolation_state_desc) COLLATE DATABASE_DEFAULT),
           (N'delayed durability', LOWER(d.delayed_durability_desc) COLLATE DATABASE_DEFAULT),
           (N'Headers', CASE TYPE_NAME(c.system_type_id)
               WHEN N'nvarchar' THEN N'nvarchar'
               WHEN N'varchar'
                   THEN CONCAT(N'varchar, code page ', CAST(COLLATIONPROPERTY(c.collation_name, 'CodePage') AS int))
           END)
) AS v (name, value)
WHERE t.object_id = ? AND v.value IS NOT NULL
