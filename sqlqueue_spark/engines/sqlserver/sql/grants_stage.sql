-- grants_stage.sql · SQL Server · for people: all that an atomic pipeline needs of its stage, a right a line
-- Source and sink together, for they are one login. UPDATE changes the mark, which stands in Headers. TRUNCATE takes ALTER.
GRANT SELECT ON {stage} TO {user};
GRANT INSERT ON {stage} TO {user};
GRANT UPDATE (Headers) ON {stage} TO {user};
GRANT ALTER ON {stage} TO {user};
