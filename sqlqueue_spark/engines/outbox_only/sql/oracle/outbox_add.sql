-- outbox_add.sql · Oracle · remembers message ids
-- in: version of the writer, message ids as JSON     out: number of rows
-- An id that is there is ORA-00001. ORDER BY: in the same order twins do not deadlock.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT TO_NCHAR(j.id), 1, SYS_EXTRACT_UTC(SYSTIMESTAMP), ?, TO_CLOB('[]')
FROM JSON_TABLE(?, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
ORDER BY j.id
