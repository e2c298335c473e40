-- rights.sql · PostgreSQL · what a login may do, and the statements that let it

-- name: rights
-- Returns what the connected user may do with a table, among the rights of grants_receiver and grants_sender.
-- out: user, role, right, whether the user has it
-- Rights that come by roles or by ownership count too. Senders need a right to a sequence only where a
-- default takes its numbers; an identity's sequence belongs to the column. CASE: the server tries conditions
-- in any order, and a table is no sequence. Where row security is active for the user, each statement also
-- needs a policy that may let rows pass.
SELECT current_user::text, r.role, r.name, r.held
FROM pg_catalog.pg_class AS c
CROSS JOIN LATERAL (
    VALUES ('receiver', 'USAGE on the schema', has_schema_privilege(c.relnamespace, 'USAGE')),
           ('receiver', 'SELECT', has_table_privilege(c.oid, 'SELECT')),
           ('receiver', 'UPDATE', has_any_column_privilege(c.oid, 'UPDATE')),
           ('receiver', 'DELETE', has_table_privilege(c.oid, 'DELETE')),
           ('sender', 'USAGE on the schema', has_schema_privilege(c.relnamespace, 'USAGE')),
           ('sender', 'INSERT', (
               SELECT bool_and(has_column_privilege(c.oid, a.attnum, 'INSERT'))
               FROM pg_catalog.pg_attribute AS a
               WHERE a.attrelid = c.oid AND a.attname IN ('id', 'expires', 'headers', 'body')
           )),
           ('sender', 'USAGE on the sequence', NOT EXISTS (
               SELECT
               FROM pg_catalog.pg_attrdef AS d
               JOIN pg_catalog.pg_depend AS p ON p.classid = 'pg_attrdef'::regclass::oid AND p.objid = d.oid
               JOIN pg_catalog.pg_class AS q ON q.oid = p.refobjid
               WHERE d.adrelid = c.oid AND p.refclassid = 'pg_class'::regclass::oid
                 AND CASE q.relkind WHEN 'S' THEN NOT has_sequence_privilege(q.oid, 'USAGE, UPDATE') END
           ))
    UNION ALL
    SELECT p.role, 'a policy for ' || p.name || ' (row security)', NOT row_security_active(c.oid) OR EXISTS (
        SELECT
        FROM pg_catalog.pg_policy AS o
        CROSS JOIN pg_catalog.unnest(o.polroles) AS u (role)
        WHERE o.polrelid = c.oid AND o.polpermissive AND o.polcmd::text IN (p.code, '*')
          AND CASE u.role WHEN 0::oid THEN true ELSE pg_has_role(u.role, 'USAGE') END
    )
    FROM (
        VALUES ('receiver', 'SELECT', 'r'), ('receiver', 'UPDATE', 'w'), ('receiver', 'DELETE', 'd'),
               ('sender', 'INSERT', 'a')
    ) AS p (role, name, code)
) AS r (role, name, held)
WHERE current_database() = :database AND c.oid = :object_id::oid

-- name: power
-- Returns what makes this login mightier than a job should be.
-- out: what it is or owns; no row where it is nothing of that
SELECT CASE WHEN r.rolsuper THEN 'is a superuser' WHEN d.datdba = r.oid THEN 'owns the database'
    ELSE 'owns the table' END
FROM pg_catalog.pg_roles AS r
CROSS JOIN pg_catalog.pg_database AS d
JOIN pg_catalog.pg_class AS c ON c.oid = :object_id::oid
WHERE r.rolname = current_user AND d.datname = current_database()
  AND (r.rolsuper OR d.datdba = r.oid OR c.relowner = r.oid)

-- none: grants_database · a connection reaches one database, and names of another are refused.

-- name: grants_receiver
-- For people: gives all the rights that a receiver needs to its queue, one a line. SELECT … FOR UPDATE needs
-- UPDATE on some column, no matter which. The receiver gets it on the row's id, because no row is found by
-- its id and no row expires by it.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {queue} TO {user};
GRANT UPDATE (id) ON {queue} TO {user};
GRANT DELETE ON {queue} TO {user};

-- name: grants_sender
-- For people: gives all the rights that a sender needs to a destination, one a line.
-- A sender needs no SELECT. The default of seq takes its numbers from the sequence with the sender's rights.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT INSERT ON {queue} TO {user};
GRANT USAGE ON SEQUENCE {sequence} TO {user};

-- name: grants_outbox
-- For people: gives all the rights that a sender needs to its outbox, one a line. The cleanup locks the rows
-- that it deletes, and for that it needs UPDATE on some column. The sender gets it on "PersistenceVersion",
-- which is not the key and by which no row is cleaned up.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {outbox} TO {user};
GRANT INSERT ON {outbox} TO {user};
GRANT UPDATE ("PersistenceVersion") ON {outbox} TO {user};
GRANT DELETE ON {outbox} TO {user};

-- name: grants_stage
-- For people: gives all the rights that an atomic pipeline needs to its stage, one a line. Source and sink
-- get them together, because they are one login. UPDATE is needed to lock and to change the mark.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {stage} TO {user};
GRANT INSERT ON {stage} TO {user};
GRANT UPDATE (mark) ON {stage} TO {user};
GRANT TRUNCATE ON {stage} TO {user};
GRANT USAGE ON SEQUENCE {sequence} TO {user};

-- name: grants_publisher
-- For people: gives the right that a publisher needs to the table of subscriptions, one a line.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {subscriptions} TO {user};

-- name: grants_subscriber
-- For people: gives all the rights that a subscriber needs to the table of subscriptions, one a line.
-- UPDATE: another address takes the place of the one that is there.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {subscriptions} TO {user};
GRANT INSERT ON {subscriptions} TO {user};
GRANT UPDATE ON {subscriptions} TO {user};
GRANT DELETE ON {subscriptions} TO {user};

-- name: grants_installer
-- For people: gives all the rights that an installer needs to a schema, one a line. The installer owns what
-- the installer creates. USAGE: while a table is created, its default finds the sequence by name.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT CREATE ON SCHEMA {schema} TO {user};
