-- stage_held.sql · PostgreSQL · which other sessions hold a stage
-- in: the stage's full name, quoted     out: session
-- The number that stage_hold takes stands in two halves (https://www.postgresql.org/docs/current/view-pg-locks.html).
SELECT l.pid
FROM pg_catalog.pg_locks AS l
CROSS JOIN (SELECT hashtextextended(?, 1) AS number) AS k
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
  AND l.classid::bigint = ((k.number >> 32) & 4294967295) AND l.objid::bigint = (k.number & 4294967295)
  AND l.pid <> pg_backend_pid()
