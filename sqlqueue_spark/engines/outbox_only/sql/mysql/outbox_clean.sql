-- outbox_clean.sql · MySQL · forgets the next message ids that are old enough
-- in: seconds that an id is kept     out: number of rows
-- Never rows that are not dispatched: a .NET endpoint has yet to send what they hold. SKIP LOCKED steps over rows that
-- others hold, so that nobody waits. Old by the database's clock.
DELETE o
FROM (
    SELECT MessageId
    FROM {outbox}
    WHERE Dispatched = 1 AND DispatchedAt < UTC_TIMESTAMP() - INTERVAL ? SECOND
    ORDER BY DispatchedAt
    LIMIT 4000
    FOR UPDATE SKIP LOCKED
) AS batch
STRAIGHT_JOIN {outbox} AS o ON o.MessageId = batch.MessageId
