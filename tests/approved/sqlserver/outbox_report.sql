SELECT COUNT_BIG(*),
       COALESCE(SUM(CASE WHEN Dispatched = 0 THEN CAST(1 AS bigint) ELSE CAST(0 AS bigint) END), 0),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       SYSUTCDATETIME()
FROM [dbo].[Sales_Orders_OutboxData] WITH (READUNCOMMITTED)
