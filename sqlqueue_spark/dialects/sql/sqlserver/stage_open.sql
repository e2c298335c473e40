-- stage_open.sql · SQL Server · marks whose an empty stage is
-- in: the mark, as JSON
INSERT INTO {stage} (Task, Destination, Headers) VALUES ('', N'', ?)
