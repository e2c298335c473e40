SELECT l.pid
FROM pg_catalog.pg_locks AS l
CROSS JOIN (SELECT hashtextextended(?, 1) AS number) AS k
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
  AND l.classid::bigint = ((k.number >> 32) & 4294967295) AND l.objid::bigint = (k.number & 4294967295)
  AND l.pid <> pg_backend_pid()
