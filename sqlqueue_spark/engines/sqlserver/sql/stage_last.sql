-- stage_last.sql · SQL Server · the number of the last row on a stage
-- out: the last RowVersion or NULL
-- From the end of the clustered index. READUNCOMMITTED: a task that a dead attempt has left may just be staging, and is not to
-- be waited for; what it adds later never counts either.
SELECT MAX(RowVersion) FROM {stage} WITH (READUNCOMMITTED)
