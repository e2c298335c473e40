-- session.sql · SQL Server · the settings of a connection
-- in: lock timeout (milliseconds)
-- Run with the number written in: what a parameterised batch SETs is undone when the batch ends. XACT_ABORT: an
-- error ends the whole transaction, so that nothing is ever half settled. NOCOUNT may be on by the server's user
-- options: a settled claim could not be counted then, and no batch would ever be settled. TEXTSIZE: FreeTDS may be set up to
-- cut values at 64 KB, and a message would be deleted of which only that much was read.
SET LOCK_TIMEOUT ?;
SET TEXTSIZE 2147483647;
SET NOCOUNT OFF;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED
