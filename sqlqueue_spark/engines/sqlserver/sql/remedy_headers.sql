-- remedy_headers.sql · SQL Server · a remedy for people: headers that keep every letter
-- Every row is written anew and everybody waits meanwhile: quick when the queue is nearly empty.
ALTER TABLE {queue} ALTER COLUMN Headers nvarchar(max) NOT NULL;
