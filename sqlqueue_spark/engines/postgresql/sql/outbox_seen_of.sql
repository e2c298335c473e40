-- outbox_seen_of.sql · PostgreSQL · which of some message ids are there, written by one version
-- in: array, as text, of message ids, the version of their writer     out: message id
-- Rows of others say nothing here: what a .NET endpoint has handled was not sent by us. Else as outbox_seen.sql.
SELECT i.id
FROM unnest(?::text[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT FROM {outbox} WHERE "MessageId" = i.id AND "PersistenceVersion" = ?::text OFFSET 0
) AS o
