-- attempt_unhurried.sql · PostgreSQL · lets the statements of an attempt take as long as they need
-- Until the savepoint is undone or the transaction ends. Locks are waited for no longer than before.
SELECT set_config('statement_timeout', '0', true)
