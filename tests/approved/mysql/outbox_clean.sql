DELETE o
FROM (
    SELECT MessageId
    FROM `Sales_Orders_OutboxData`
    WHERE Dispatched = 1 AND DispatchedAt < UTC_TIMESTAMP() - INTERVAL ? SECOND
    ORDER BY DispatchedAt
    LIMIT 4000
    FOR UPDATE SKIP LOCKED
) AS batch
STRAIGHT_JOIN `Sales_Orders_OutboxData` AS o ON o.MessageId = batch.MessageId
