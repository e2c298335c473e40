-- stage_open.sql · SQL Server · gives a stage its first mark
-- in: the mark, as JSON
INSERT INTO {stage} (Task, Destination, Headers) VALUES ('', N'', ?)
