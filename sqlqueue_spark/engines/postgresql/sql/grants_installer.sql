-- grants_installer.sql · PostgreSQL · for people: all that an installer needs of a schema, a right a line
-- What he creates is his own. USAGE: a table's default finds its sequence by name while it is created.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT CREATE ON SCHEMA {schema} TO {user};
