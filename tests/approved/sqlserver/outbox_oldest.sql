SELECT o.PersistenceVersion, COUNT(*)
FROM (
    SELECT TOP (1000) PersistenceVersion
    FROM [dbo].[Sales_Orders_OutboxData] WITH (READUNCOMMITTED)
    WHERE Dispatched = 1
    ORDER BY DispatchedAt
) AS o
GROUP BY o.PersistenceVersion
