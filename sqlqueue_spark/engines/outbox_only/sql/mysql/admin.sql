-- admin.sql · MySQL · what people do to queues: create, measure, look into, purge

-- name: script_begin
-- Nothing to do: a statement that creates a table is a transaction of its own.

-- name: script_end
-- Ends a script that creates one table.
;
