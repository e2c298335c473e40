-- grants_receiver.sql · PostgreSQL · for people: all that a receiver needs of its queue, a right a line
-- SELECT … FOR UPDATE takes UPDATE on some column, whichever: so on the row's id, by which nothing is found and nothing
-- expires.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {queue} TO {user};
GRANT UPDATE (id) ON {queue} TO {user};
GRANT DELETE ON {queue} TO {user};
