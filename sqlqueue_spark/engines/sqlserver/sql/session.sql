-- session.sql · SQL Server · how a session is set up, and what is tried behind a savepoint

-- name: session
-- the settings of a connection
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

-- name: lock_timeout
-- how long a statement waits for a lock, until it is set again
-- in: milliseconds
-- Run with the number written in: what a parameterised batch SETs is undone when the batch ends.
SET LOCK_TIMEOUT ?

-- name: backend
-- nothing to ask: nobody lends its sessions to others from one transaction to the next

-- name: attempt_begin
-- begins a part of the transaction that can be undone alone
-- With XACT_ABORT on, nearly every error would end the whole transaction, and its locks with it. The SELECT begins a
-- transaction where the driver leaves that to the first look at a table; without one nothing can be saved.
SET XACT_ABORT OFF;
IF @@TRANCOUNT = 0 SELECT TOP (0) name FROM sys.tables;
SAVE TRANSACTION attempt

-- name: attempt_unhurried
-- nothing to do: how long a statement may take is for the driver to say

-- name: attempt_check
-- ends an attempt that went well
-- Constraints are checked by each statement, so nothing is left to fail. XACT_ABORT is on again for what follows.
SET XACT_ABORT ON

-- name: attempt_state
-- what became of the transaction in which a statement failed
-- out: 1 where it stands and an attempt can be undone, -1 where it can only be rolled back, 0 where the server has ended it
SELECT CAST(XACT_STATE() AS int)

-- name: attempt_undo
-- undoes an attempt that failed
-- What was locked before it stays locked. XACT_ABORT is on again for what follows.
ROLLBACK TRANSACTION attempt;
SET XACT_ABORT ON
