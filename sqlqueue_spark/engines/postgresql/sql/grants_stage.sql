-- grants_stage.sql · PostgreSQL · for people: all that an atomic pipeline needs of its stage, a right a line
-- Source and sink together, for they are one login. UPDATE locks and changes the mark.
GRANT USAGE ON SCHEMA {schema} TO {user};
GRANT SELECT ON {stage} TO {user};
GRANT INSERT ON {stage} TO {user};
GRANT UPDATE (mark) ON {stage} TO {user};
GRANT TRUNCATE ON {stage} TO {user};
GRANT USAGE ON SEQUENCE {sequence} TO {user};
