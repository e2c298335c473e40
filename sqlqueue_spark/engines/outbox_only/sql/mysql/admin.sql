-- admin.sql · MySQL · what people do to queues: create, measure, look into, purge

-- none: script_begin · a statement that creates a table is a transaction of its own.

-- name: script_end
-- Ends a script that creates one table.
;
