-- grants_outbox.sql · SQL Server · for people: all that a sender needs of its outbox, a right a line
GRANT SELECT ON {outbox} TO {user};
GRANT INSERT ON {outbox} TO {user};
GRANT DELETE ON {outbox} TO {user};
