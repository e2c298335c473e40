-- indexes.sql · PostgreSQL · the key columns of a table's indexes
-- in: object id of the table     out: index, key column (NULL for an expression), unique, kind, filter
-- One row a key column, in their order. An index that is not valid serves nobody and is left out.
SELECT c.relname::text, a.attname::text, i.indisunique, m.amname::text, pg_get_expr(i.indpred, i.indrelid)
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, position)
LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = ?::oid AND i.indisvalid AND k.position <= i.indnkeyatts
ORDER BY c.relname, k.position
