-- stage_open.sql · PostgreSQL · marks whose an empty stage is
-- in: the mark, as JSON
INSERT INTO {stage} (task, destination, mark) VALUES ('', '', ?)
