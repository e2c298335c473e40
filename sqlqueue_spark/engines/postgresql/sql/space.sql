-- space.sql · PostgreSQL · how much of a table is dead
-- in: object id of the table     out: pages, live rows, dead rows, seconds since it was last vacuumed (NULL: never)
-- Rows as the statistics see them. Pages do not count against a table here: rows are found by index.
SELECT pg_relation_size(s.relid) / current_setting('block_size')::bigint,
       s.n_live_tup,
       s.n_dead_tup,
       extract(epoch FROM statement_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::bigint
FROM pg_catalog.pg_stat_all_tables AS s
WHERE s.relid = ?::oid
