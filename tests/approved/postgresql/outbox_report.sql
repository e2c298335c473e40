SELECT count(*),
       count(*) FILTER (WHERE NOT "Dispatched"),
       min("DispatchedAt") FILTER (WHERE "Dispatched"),
       statement_timestamp() AT TIME ZONE 'UTC'
FROM "public"."Sales_Orders_OutboxData"
