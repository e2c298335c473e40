-- outbox_clean.sql · PostgreSQL · forgets the next message ids that are old enough
-- in: seconds that an id is kept     out: number of rows
-- Never rows that are not dispatched: a .NET endpoint has yet to send what they hold. SKIP LOCKED steps over rows that
-- others hold, so that nobody waits. Old by the database's clock. ORDER BY makes the index on "DispatchedAt" the cheapest
-- way, and not that on "Dispatched", by which nearly every row is found. MATERIALIZED: the rows are chosen once.
WITH batch AS MATERIALIZED (
    SELECT "MessageId"
    FROM {outbox}
    WHERE "Dispatched" AND "DispatchedAt" < statement_timestamp() AT TIME ZONE 'UTC' - ?::bigint * interval '1 second'
    ORDER BY "DispatchedAt"
    LIMIT 4000
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {outbox} AS o
USING batch
WHERE o."MessageId" = batch."MessageId"
