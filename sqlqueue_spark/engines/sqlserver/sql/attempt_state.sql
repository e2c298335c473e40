-- attempt_state.sql · SQL Server · what became of the transaction in which a statement failed
-- out: 1 where it stands and an attempt can be undone, -1 where it can only be rolled back, 0 where the server has ended it
SELECT CAST(XACT_STATE() AS int)
