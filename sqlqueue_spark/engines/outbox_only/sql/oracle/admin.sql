-- admin.sql · Oracle · what people do to queues: create, measure, look into, purge

-- name: script_begin
-- nothing to do: each statement commits by itself

-- name: script_end
-- how a script that creates one table ends: SQL*Plus runs the block
/
