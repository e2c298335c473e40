-- outbox_seen.sql · MySQL · which of some message ids are there
-- in: message ids as JSON     out: message id, as it was asked for
-- CONVERT: nvarchar is utf8mb3, and the key is of no use to a text of another character set. STRAIGHT_JOIN: each id is
-- looked up in the primary key.
SELECT j.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id varchar(200) PATH '$')) AS j
STRAIGHT_JOIN {outbox} AS o ON o.MessageId = CONVERT(j.id USING utf8mb3)
