-- grants_sender.sql · PostgreSQL · for people: all that a sender needs of a destination, a right a line
-- Not SELECT. The default of seq takes its numbers from the sequence as the sender.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT INSERT ON {queue} TO {user};
GRANT USAGE ON SEQUENCE {sequence} TO {user};
