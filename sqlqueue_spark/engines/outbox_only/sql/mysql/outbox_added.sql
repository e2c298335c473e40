-- outbox_added.sql · MySQL · which of some message ids outbox_add_new has inserted
-- in: message ids as JSON, the mark of that call     out: message id, as it was asked for
-- No INSERT tells here what it has inserted, and the number of rows depends on the connection. Rows of our own transaction
-- are seen under every isolation level. Else as outbox_seen.sql.
SELECT j.id
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS j
STRAIGHT_JOIN {outbox} AS o ON o.MessageId = CONVERT(j.id USING utf8mb3)
WHERE o.PersistenceVersion = ?
