-- outbox_seen.sql · PostgreSQL · which of some message ids are there
-- in: array, as text, of message ids     out: message id
-- LATERAL with OFFSET 0: each id is looked up in the primary key; as a plain join the planner may walk the whole table
-- instead. Ids that others have inserted and not committed are not there yet.
SELECT i.id
FROM unnest(?::text[]) AS i (id)
CROSS JOIN LATERAL (SELECT FROM {outbox} WHERE "MessageId" = i.id OFFSET 0) AS o
