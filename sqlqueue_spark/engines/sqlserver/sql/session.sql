-- session.sql · SQL Server · how a session is set up, and what is tried behind a savepoint

-- name: session
-- Sets the settings of a connection.
-- The caller writes the number into the text: the server undoes what a batch with parameters SETs at its end.
-- XACT_ABORT: an error ends the whole transaction, so that nothing is ever half settled. NOCOUNT: we ask for
-- each count with @@ROWCOUNT, so the server need not send a count for each statement of a trigger. TEXTSIZE:
-- FreeTDS may be set up to cut values at 64 KB. Then we would delete a message of which we had read only that
-- much. The options from ANSI_NULLS to NUMERIC_ROUNDABORT are those that a table with a filtered index, an
-- indexed computed column or an indexed view needs: with any other value each change of its rows is error
-- 1934. Microsoft's driver sets most of them. FreeTDS does not, and a login or a database may have other
-- defaults.
-- https://learn.microsoft.com/sql/t-sql/statements/create-index-transact-sql#required-set-options-for-filtered-indexes
SET LOCK_TIMEOUT :lock_timeout;
SET TEXTSIZE 2147483647;
SET NOCOUNT ON;
SET ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL, QUOTED_IDENTIFIER ON;
SET NUMERIC_ROUNDABORT OFF;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: lock_timeout
-- Sets how long a statement waits for a lock, until it is set again. The number as in session.
SET LOCK_TIMEOUT :lock_timeout

-- none: statement_timeout · the driver cuts statements off.
-- none: backend · no pooler lends a session to others from one transaction to the next.

-- name: attempt_begin
-- Begins a part of the transaction that can be undone alone.
-- With XACT_ABORT on, nearly every error would end the whole transaction, and free its locks. The savepoint
-- needs an open transaction. The SELECT begins one where the driver waits with that for a look at a table;
-- with TOP (0) no plan would look at one.
SET XACT_ABORT OFF;
IF @@TRANCOUNT = 0 SELECT TOP (1) name FROM sys.tables;
SAVE TRANSACTION {attempt}

-- name: attempt_check
-- Ends an attempt that went well.
-- Each statement checks the constraints itself, so nothing is left that could fail. XACT_ABORT is on again
-- for what follows, but not while the attempt around this one goes on.
IF N'{attempt}' = N'[attempt 1]' SET XACT_ABORT ON

-- name: attempt_state
-- Returns what became of the transaction in which a statement failed.
-- out: 1 where one stands, -1 where it can only be rolled back, 0 where the server has ended it. Microsoft's
--     driver then begins a new one before this statement (TM_BEGIN_XACT), and 1 is said of that
SELECT CAST(XACT_STATE() AS int)

-- name: attempt_undo
-- Undoes an attempt that failed. XACT_ABORT is on again as in attempt_check. A transaction that the driver
-- has begun since knows no savepoint of this name (error 6401).
ROLLBACK TRANSACTION {attempt};
IF N'{attempt}' = N'[attempt 1]' SET XACT_ABORT ON
