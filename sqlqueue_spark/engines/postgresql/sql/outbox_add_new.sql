-- outbox_add_new.sql · PostgreSQL · remembers those of some message ids that are not there
-- in: version of the writer, array, as text, of message ids     out: message id of each row that was inserted
-- ON CONFLICT waits for an id that somebody else has inserted and not committed, and knows then whether it is there. Rows
-- are inserted in the order of the array: in the same order twins do not deadlock.
INSERT INTO {outbox} ("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion", "Operations")
SELECT i.id, true, statement_timestamp() AT TIME ZONE 'UTC', ?::text, '[]'::jsonb
FROM unnest(?::text[]) AS i (id)
ON CONFLICT ("MessageId") DO NOTHING
RETURNING "MessageId"
