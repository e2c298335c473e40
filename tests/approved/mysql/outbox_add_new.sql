INSERT INTO `Sales_Orders_OutboxData` (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.id, 1, UTC_TIMESTAMP(), ?, '[]'
FROM JSON_TABLE(?, '$[*]' COLUMNS (id varchar(200) PATH '$')) AS i
ORDER BY i.id
ON DUPLICATE KEY UPDATE MessageId = MessageId
