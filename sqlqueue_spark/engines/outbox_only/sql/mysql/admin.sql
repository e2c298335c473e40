-- admin.sql · MySQL · what people do to queues: create, measure, look into, purge

-- name: script_begin
-- nothing to do: a statement that creates a table is a transaction of its own

-- name: script_end
-- how a script that creates one table ends
;
