-- grants_receiver.sql · SQL Server · for people: all that a receiver needs of its queue, a right a line
-- Locks take no right of their own. The catalogue shows a table to whoever has any right to it, so no VIEW DEFINITION.
GRANT SELECT ON {queue} TO {user};
GRANT DELETE ON {queue} TO {user};
