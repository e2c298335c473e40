SELECT j.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id varchar(200) PATH '$')) AS j
STRAIGHT_JOIN `Sales_Orders_OutboxData` AS o ON o.MessageId = CONVERT(j.id USING utf8mb3)
WHERE o.PersistenceVersion = ?
