-- attempt_check.sql · PostgreSQL · lets fail now what would make the commit fail
-- A commit that fails ends the transaction, and every lock with it.
SET CONSTRAINTS ALL IMMEDIATE
