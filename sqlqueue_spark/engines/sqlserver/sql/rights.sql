-- rights.sql · SQL Server · what a login may do, and the statements that let it

-- name: rights
-- Returns what the connected user may do with a table, among the rights of grants_receiver and grants_sender.
-- Rights that come by roles, by ownership or from above count too. HAS_PERMS_BY_NAME takes a name of at most
-- 128 characters, and says nothing of a longer one.
SELECT USER_NAME(),
       r.role,
       r.name,
       CAST(HAS_PERMS_BY_NAME(
           CONCAT(QUOTENAME(CAST(:database AS sysname)), N'.', QUOTENAME(s.name), N'.', QUOTENAME(t.name)),
               N'OBJECT', r.name
       ) AS bit)
FROM {catalog}.sys.tables AS t
JOIN {catalog}.sys.schemas AS s ON s.schema_id = t.schema_id
CROSS JOIN (
    VALUES (N'receiver', N'SELECT'), (N'receiver', N'DELETE'), (N'sender', N'INSERT')
) AS r (role, name)
WHERE t.object_id = :object_id

-- name: power
-- Returns what makes this user mightier than a job should be.
SELECT p.power
FROM {catalog}.sys.tables AS t
JOIN {catalog}.sys.schemas AS s ON s.schema_id = t.schema_id
CROSS APPLY (
    SELECT CASE WHEN IS_SRVROLEMEMBER(N'sysadmin') = 1 THEN N'is a sysadmin'
        WHEN IS_MEMBER(N'db_owner') = 1 THEN N'is a db_owner'
        WHEN COALESCE(t.principal_id, s.principal_id) = DATABASE_PRINCIPAL_ID() THEN N'owns the table' END
) AS p (power)
WHERE t.object_id = :object_id AND p.power IS NOT NULL

-- name: grants_database
-- For people: goes to the database of the tables whose rights follow.
-- A right is given in the database of its table, by a name of two parts. On Azure SQL a connection has one
-- database: there people run the script in that database, without this line.
USE {catalog};

-- name: grants_receiver
-- For people: gives all the rights that a receiver needs to its queue, one a line. Locks need no right of
-- their own. The catalogue shows a table to each login that has any right to it, so there is no VIEW
-- DEFINITION.
GRANT SELECT ON {queue} TO {user};
GRANT DELETE ON {queue} TO {user};

-- name: grants_sender
-- For people: gives all the rights that a sender needs to a destination.
-- A sender needs no SELECT. As for a receiver, there is no VIEW DEFINITION: INSERT is a right to it.
GRANT INSERT ON {queue} TO {user};

-- name: grants_outbox
-- For people: gives all the rights that a sender needs to its outbox, one a line.
GRANT SELECT ON {outbox} TO {user};
GRANT INSERT ON {outbox} TO {user};
GRANT DELETE ON {outbox} TO {user};

-- name: grants_stage
-- For people: gives all the rights that an atomic pipeline needs to its stage, one a line. UPDATE is needed
-- to change the mark, which stands in Headers. TRUNCATE needs ALTER.
GRANT SELECT ON {stage} TO {user};
GRANT INSERT ON {stage} TO {user};
GRANT UPDATE (Headers) ON {stage} TO {user};
GRANT ALTER ON {stage} TO {user};

-- name: grants_publisher
-- For people: gives the right that a publisher needs to the table of subscriptions.
GRANT SELECT ON {subscriptions} TO {user};

-- name: grants_subscriber
-- For people: gives all the rights that a subscriber needs to the table of subscriptions, one a line.
GRANT SELECT ON {subscriptions} TO {user};
GRANT INSERT ON {subscriptions} TO {user};
GRANT UPDATE ON {subscriptions} TO {user};
GRANT DELETE ON {subscriptions} TO {user};

-- name: grants_installer
-- For people: gives all the rights that an installer needs to a schema, one a line. To create a table, the
-- installer needs both CREATE TABLE in the database and ALTER on the schema. ALTER also lets the installer
-- change and drop what is there already, and by ALTER the catalogue shows the schema's tables.
GRANT CREATE TABLE TO {user};
GRANT ALTER ON SCHEMA::{schema} TO {user};
