-- rights.sql · SQL Server · what the connected user may do with a table, as grants_receiver.sql and grants_sender.sql give it
-- in: database, object id of the table     out: user, role, right, whether the user has it (NULL: the server does not say)
-- Rights that come by roles, by ownership or from above count. The name that is asked for may have 128 characters; of a
-- longer one nothing is known.
SELECT USER_NAME(),
       r.role,
       r.name,
       CAST(HAS_PERMS_BY_NAME(
           CONCAT(QUOTENAME(CAST(? AS sysname)), N'.', QUOTENAME(s.name), N'.', QUOTENAME(t.name)), N'OBJECT', r.name
       ) AS bit)
FROM {catalog}.sys.tables AS t
JOIN {catalog}.sys.schemas AS s ON s.schema_id = t.schema_id
CROSS JOIN (
    VALUES (N'receiver', N'SELECT'), (N'receiver', N'DELETE'), (N'sender', N'INSERT')
) AS r (role, name)
WHERE t.object_id = ?
