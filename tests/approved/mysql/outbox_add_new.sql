INSERT INTO `Sales_Orders_OutboxData` (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT i.id, 1, UTC_TIMESTAMP(), ?, '[]'
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS i
ORDER BY i.id
ON DUPLICATE KEY UPDATE MessageId = MessageId
