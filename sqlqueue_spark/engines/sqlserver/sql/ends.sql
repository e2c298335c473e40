-- ends.sql · SQL Server · the lowest and the highest RowVersion that are there now
-- out: both, or NULL
-- Two probes of the index: as one query over the table, MIN and MAX together are a scan of the whole index. What is sent
-- between the probes stands above what is looked at, and no old row is left out for it. READUNCOMMITTED: both are only
-- bounds, and must not wait for anyone.
SELECT (SELECT MIN(RowVersion) FROM {queue} WITH (READUNCOMMITTED)),
       (SELECT MAX(RowVersion) FROM {queue} WITH (READUNCOMMITTED))
