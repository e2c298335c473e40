-- attempt_begin.sql · PostgreSQL · begins a part of the transaction that can be undone alone
-- What fails behind a savepoint leaves the locks that were taken before it.
SAVEPOINT attempt
