-- attempt_undo.sql · PostgreSQL · undoes an attempt that failed
-- What was locked before it stays locked.
ROLLBACK TO SAVEPOINT attempt
