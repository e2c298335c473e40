SELECT COUNT(*),
       CAST(COALESCE(SUM(Dispatched = 0), 0) AS SIGNED),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       UTC_TIMESTAMP()
FROM `Sales_Orders_OutboxData`
