-- outbox_add.sql · PostgreSQL · remembers message ids
-- in: version of the writer, array, as text, of message ids     out: number of rows
-- An id that is there is a unique violation; one that somebody else has inserted and not committed is waited for. Rows
-- are inserted in the order of the array: in the same order twins do not deadlock.
INSERT INTO {outbox} ("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion", "Operations")
SELECT i.id, true, statement_timestamp() AT TIME ZONE 'UTC', ?::text, '[]'::jsonb
FROM unnest(?::text[]) AS i (id)
