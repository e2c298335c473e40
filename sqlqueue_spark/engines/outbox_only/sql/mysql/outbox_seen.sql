-- outbox_seen.sql · MySQL · which of some message ids are there
-- in: message ids as JSON     out: message id, as it was asked for
-- The character sets: else the ids would pass through that of the connection and that of the schema, and be mangled where
-- those do not know a letter. nvarchar is utf8mb3, and the key is of no use to a text of another one. STRAIGHT_JOIN: each
-- id is looked up in the primary key.
SELECT j.id
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS j
STRAIGHT_JOIN {outbox} AS o ON o.MessageId = CONVERT(j.id USING utf8mb3)
