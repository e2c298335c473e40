WITH batch AS MATERIALIZED (
    SELECT "MessageId"
    FROM "public"."Sales_Orders_OutboxData"
    WHERE "Dispatched" AND "DispatchedAt" < statement_timestamp() AT TIME ZONE 'UTC' - ?::bigint * interval '1 second'
    ORDER BY "DispatchedAt"
    LIMIT 4000
    FOR UPDATE SKIP LOCKED
)
DELETE FROM "public"."Sales_Orders_OutboxData" AS o
USING batch
WHERE o."MessageId" = batch."MessageId"
