-- lock_timeout.sql · SQL Server · how long a statement waits for a lock, until it is set again
-- in: milliseconds
-- Run with the number written in: what a parameterised batch SETs is undone when the batch ends.
SET LOCK_TIMEOUT ?
