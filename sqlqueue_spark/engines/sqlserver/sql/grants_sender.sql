-- grants_sender.sql · SQL Server · for people: all that a sender needs of a destination
-- Not SELECT, and no VIEW DEFINITION, as for a receiver: INSERT is a right to the table too.
GRANT INSERT ON {queue} TO {user};
