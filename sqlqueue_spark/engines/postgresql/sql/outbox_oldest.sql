-- outbox_oldest.sql · PostgreSQL · who wrote the oldest rows that are dispatched
-- out: version of the writer, number of rows, of the 1,000 oldest ones
-- They are found by the index on "DispatchedAt", however many rows there are.
SELECT o."PersistenceVersion", count(*)
FROM (
    SELECT "PersistenceVersion"
    FROM {outbox}
    WHERE "Dispatched"
    ORDER BY "DispatchedAt"
    LIMIT 1000
) AS o
GROUP BY o."PersistenceVersion"
