INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX(o (MessageId)) */ INTO "SALES_ORDERS_OD" o
    (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT TO_NCHAR(j.id), 1, SYS_EXTRACT_UTC(SYSTIMESTAMP), ?, TO_CLOB('[]')
FROM JSON_TABLE(?, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
ORDER BY j.id
