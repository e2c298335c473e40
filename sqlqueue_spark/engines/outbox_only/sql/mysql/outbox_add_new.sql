-- outbox_add_new.sql · MySQL · remembers those of some message ids that are not there; outbox_added tells which
-- in: a mark of this call, message ids as JSON     out: nothing
-- It waits for an id that somebody else has inserted and not committed. A duplicate changes nothing. Not INSERT IGNORE,
-- which would also make a warning of an id that the column cannot keep, and so store a wrong one. ORDER BY: in the same
-- order twins do not deadlock. Character sets as in outbox_seen.sql.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.id, 1, UTC_TIMESTAMP(), ?, '[]'
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS i
ORDER BY i.id
ON DUPLICATE KEY UPDATE MessageId = MessageId
