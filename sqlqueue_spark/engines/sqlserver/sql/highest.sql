-- highest.sql · SQL Server · the highest RowVersion that is there now
-- out: RowVersion or NULL
-- READUNCOMMITTED: it is only an upper bound, and must not wait for anyone.
SELECT MAX(RowVersion) FROM {queue} WITH (READUNCOMMITTED)
