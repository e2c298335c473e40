SELECT j.id
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS j
STRAIGHT_JOIN `Sales_Orders_OutboxData` AS o ON o.MessageId = CONVERT(j.id USING utf8mb3)
WHERE o.PersistenceVersion = ?
