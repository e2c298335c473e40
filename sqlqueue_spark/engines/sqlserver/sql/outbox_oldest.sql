-- outbox_oldest.sql · SQL Server · who wrote the oldest rows that are dispatched
-- out: version of the writer, number of rows, of the 1,000 oldest ones
-- They are found by the index on DispatchedAt, however many rows there are. READUNCOMMITTED: it must neither wait for anyone
-- nor make anyone wait; a row that is not committed yet is none of the oldest.
SELECT o.PersistenceVersion, COUNT(*)
FROM (
    SELECT TOP (1000) PersistenceVersion
    FROM {outbox} WITH (READUNCOMMITTED)
    WHERE Dispatched = 1
    ORDER BY DispatchedAt
) AS o
GROUP BY o.PersistenceVersion
