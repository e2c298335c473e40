-- outbox_add_new.sql · Oracle · remembers those of some message ids that are not there; outbox_added tells which
-- in: a mark of this call, message ids as JSON     out: nothing
-- It waits for an id that somebody else has inserted and not committed. The hint is no advice but an order: a duplicate
-- is passed over. ORDER BY: in the same order twins do not deadlock.
INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX(o (MessageId)) */ INTO {outbox} o
    (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT TO_NCHAR(j.id), 1, SYS_EXTRACT_UTC(SYSTIMESTAMP), ?, TO_CLOB('[]')
FROM JSON_TABLE(?, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
ORDER BY j.id
