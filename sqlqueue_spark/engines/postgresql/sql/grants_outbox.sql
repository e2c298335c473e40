-- grants_outbox.sql · PostgreSQL · for people: all that a sender needs of its outbox, a right a line
-- The cleanup locks the rows that it deletes, which takes UPDATE on some column: so on the one that nothing goes by.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {outbox} TO {user};
GRANT INSERT ON {outbox} TO {user};
GRANT UPDATE ("PersistenceVersion") ON {outbox} TO {user};
GRANT DELETE ON {outbox} TO {user};
