-- grants_installer.sql · SQL Server · for people: all that an installer needs of a schema, a right a line
-- A table takes both: CREATE TABLE in the database and ALTER on its schema, which lets him change and drop what is there
-- too. The catalogue shows him the schema's tables by that right.
GRANT CREATE TABLE TO {user};
GRANT ALTER ON SCHEMA::{schema} TO {user};
