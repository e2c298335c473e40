-- rights.sql · PostgreSQL · what the connected user may do with a table, as grants_receiver.sql and grants_sender.sql give it
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
