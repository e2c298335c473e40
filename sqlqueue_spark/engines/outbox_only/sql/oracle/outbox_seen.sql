-- outbox_seen.sql · Oracle · which of some message ids are there
-- in: message ids as JSON     out: message id, as it was asked for
-- TO_NCHAR: of the column's own type, or the key would be of no use. The hint: each id is looked up in the primary key.
SELECT /*+ LEADING(j) USE_NL(o) */ j.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
JOIN {outbox} o ON o.MessageId = TO_NCHAR(j.id)
