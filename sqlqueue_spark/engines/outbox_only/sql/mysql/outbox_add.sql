-- outbox_add.sql · MySQL · remembers message ids
-- in: version of the writer, message ids as JSON     out: number of rows
-- An id that is there is error 1062. DISTINCT, in the column's character set: ids that are the same to its collation are
-- one row. ORDER BY: in the same order twins do not deadlock. Character sets as in outbox_seen.sql.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.id, 1, UTC_TIMESTAMP(), ?, '[]'
FROM (
    SELECT DISTINCT CONVERT(j.id USING utf8mb3) AS id
    FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS j
) AS i
ORDER BY i.id
