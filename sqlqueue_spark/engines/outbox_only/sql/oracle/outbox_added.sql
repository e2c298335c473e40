-- outbox_added.sql · Oracle · which of some message ids outbox_add_new has inserted
-- in: message ids as JSON, the mark of that call     out: message id, as it was asked for
-- An INSERT from a query does not tell here what it has inserted. Else as outbox_seen.sql.
SELECT /*+ LEADING(j) USE_NL(o) */ j.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
JOIN {outbox} o ON o.MessageId = TO_NCHAR(j.id)
WHERE o.PersistenceVersion = ?
