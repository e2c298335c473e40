-- rights.sql · SQL Server · what a login may do, and the statements that let it

-- name: rights
-- what the connected user may do with a table, as grants_receiver and grants_sender give it
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

-- name: grants_database
-- for people: where the tables lie whose rights follow
-- A right is given in the database of its table, by a name of two parts. Azure SQL has one database a connection: there
-- the script runs in it without this line.
USE {catalog};

-- name: grants_receiver
-- for people: all that a receiver needs of its queue, a right a line
-- Locks take no right of their own. The catalogue shows a table to whoever has any right to it, so no VIEW DEFINITION.
GRANT SELECT ON {queue} TO {user};
GRANT DELETE ON {queue} TO {user};

-- name: grants_sender
-- for people: all that a sender needs of a destination
-- Not SELECT, and no VIEW DEFINITION, as for a receiver: INSERT is a right to the table too.
GRANT INSERT ON {queue} TO {user};

-- name: grants_outbox
-- for people: all that a sender needs of its outbox, a right a line
GRANT SELECT ON {outbox} TO {user};
GRANT INSERT ON {outbox} TO {user};
GRANT DELETE ON {outbox} TO {user};

-- name: grants_stage
-- for people: all that an atomic pipeline needs of its stage, a right a line
-- Source and sink together, for they are one login. UPDATE changes the mark, which stands in Headers. TRUNCATE takes ALTER.
GRANT SELECT ON {stage} TO {user};
GRANT INSERT ON {stage} TO {user};
GRANT UPDATE (Headers) ON {stage} TO {user};
GRANT ALTER ON {stage} TO {user};

-- name: grants_installer
-- for people: all that an installer needs of a schema, a right a line
-- A table takes both: CREATE TABLE in the database and ALTER on its schema, which lets him change and drop what is there
-- too. The catalogue shows him the schema's tables by that right.
GRANT CREATE TABLE TO {user};
GRANT ALTER ON SCHEMA::{schema} TO {user};
