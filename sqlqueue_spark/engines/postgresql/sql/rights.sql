-- rights.sql · PostgreSQL · what a login may do, and the statements that let it

-- name: rights
-- what the connected user may do with a table, as grants_receiver and grants_sender give it
-- in: database, object id of the table     out: user, role, right, whether the user has it
-- Rights that come by roles or by ownership count. A sequence must be allowed only to senders who take its numbers by a
-- default; an identity's belongs to the column. CASE: conditions are tried in any order, and a table is no sequence.
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
               JOIN pg_catalog.pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
               JOIN pg_catalog.pg_class AS q ON q.oid = p.refobjid
               WHERE d.adrelid = c.oid AND p.refclassid = 'pg_class'::regclass
                 AND CASE q.relkind WHEN 'S' THEN NOT has_sequence_privilege(q.oid, 'USAGE, UPDATE') END
           ))
) AS r (role, name, held)
WHERE current_database() = ? AND c.oid = ?::oid

-- name: grants_database
-- nothing to do: a connection reaches one database, and names of another are refused

-- name: grants_receiver
-- for people: all that a receiver needs of its queue, a right a line
-- SELECT … FOR UPDATE takes UPDATE on some column, whichever: so on the row's id, by which nothing is found and nothing
-- expires.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {queue} TO {user};
GRANT UPDATE (id) ON {queue} TO {user};
GRANT DELETE ON {queue} TO {user};

-- name: grants_sender
-- for people: all that a sender needs of a destination, a right a line
-- Not SELECT. The default of seq takes its numbers from the sequence as the sender.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT INSERT ON {queue} TO {user};
GRANT USAGE ON SEQUENCE {sequence} TO {user};

-- name: grants_outbox
-- for people: all that a sender needs of its outbox, a right a line
-- The cleanup locks the rows that it deletes, which takes UPDATE on some column: so on the one that nothing goes by.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {outbox} TO {user};
GRANT INSERT ON {outbox} TO {user};
GRANT UPDATE ("PersistenceVersion") ON {outbox} TO {user};
GRANT DELETE ON {outbox} TO {user};

-- name: grants_stage
-- for people: all that an atomic pipeline needs of its stage, a right a line
-- Source and sink together, for they are one login. UPDATE locks and changes the mark.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {stage} TO {user};
GRANT INSERT ON {stage} TO {user};
GRANT UPDATE (mark) ON {stage} TO {user};
GRANT TRUNCATE ON {stage} TO {user};
GRANT USAGE ON SEQUENCE {sequence} TO {user};

-- name: grants_installer
-- for people: all that an installer needs of a schema, a right a line
-- What he creates is his own. USAGE: a table's default finds its sequence by name while it is created.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT CREATE ON SCHEMA {schema} TO {user};
