SELECT USER_NAME(),
       r.role,
       r.name,
       CAST(HAS_PERMS_BY_NAME(
           CONCAT(QUOTENAME(CAST(? AS sysname)), N'.', QUOTENAME(s.name), N'.', QUOTENAME(t.name)), N'OBJECT', r.name
       ) AS bit)
FROM [shop].sys.tables AS t
JOIN [shop].sys.schemas AS s ON s.schema_id = t.schema_id
CROSS JOIN (
    VALUES (N'receiver', N'SELECT'), (N'receiver', N'DELETE'), (N'sender', N'INSERT')
) AS r (role, name)
WHERE t.object_id = ?
