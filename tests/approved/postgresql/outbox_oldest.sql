SELECT o."PersistenceVersion", count(*)
FROM (
    SELECT "PersistenceVersion"
    FROM "public"."Sales_Orders_OutboxData"
    WHERE "Dispatched"
    ORDER BY "DispatchedAt"
    LIMIT 1000
) AS o
GROUP BY o."PersistenceVersion"
