-- settings.sql · PostgreSQL · how a table is set up, as far as it matters to a queue
-- in: database, object id of the table     out: setting, value
SELECT v.name, v.value
FROM pg_catalog.pg_class AS c
CROSS JOIN LATERAL (
    VALUES ('write-ahead log', CASE c.relpersistence WHEN 'p' THEN 'on' ELSE 'off' END),
           ('fsync', current_setting('fsync')),
           ('autovacuum', CASE WHEN current_setting('autovacuum')::boolean AND coalesce((
               SELECT o.option_value::boolean
               FROM pg_catalog.pg_options_to_table(c.reloptions) AS o
               WHERE o.option_name = 'autovacuum_enabled'
           ), true) THEN 'on' ELSE 'off' END),
           ('row security', CASE WHEN row_security_active(c.oid) THEN 'on' ELSE 'off' END)
) AS v (name, value)
WHERE current_database() = ? AND c.oid = ?::oid
