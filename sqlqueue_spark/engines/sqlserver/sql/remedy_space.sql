-- remedy_space.sql · SQL Server · a remedy for people: gives the empty pages of a heap back
-- Everybody waits while it runs; with WITH (ONLINE = ON), where the edition has it, nearly nobody does.
ALTER TABLE {queue} REBUILD;
