SELECT /*+ LEADING(j) USE_NL(o) */ j.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
JOIN "SALES_ORDERS_OD" o ON o.MessageId = TO_NCHAR(j.id)
WHERE o.PersistenceVersion = ?
