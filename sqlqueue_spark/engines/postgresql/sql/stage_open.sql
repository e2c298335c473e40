-- stage_open.sql · PostgreSQL · gives a stage its first mark
-- in: the mark, as JSON
INSERT INTO {stage} (task, destination, mark) VALUES ('', '', ?)
