-- admin.sql · Oracle · what people do to queues: create, measure, look into, purge

-- none: script_begin · each statement commits by itself.

-- name: script_end
-- Ends a script that creates one table: SQL*Plus runs the block.
/
