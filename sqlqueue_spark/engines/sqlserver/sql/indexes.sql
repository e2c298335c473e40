-- indexes.sql · SQL Server · the key columns of a table's indexes
-- in: object id of the table     out: index, key column, unique, kind, filter
-- One row a key column, in their order. A heap is one row without a name. Included columns have no key ordinal. An
-- index that is disabled or only supposed serves nobody and is left out.
SELECT i.name, c.name, i.is_unique, LOWER(i.type_desc), i.filter_definition
FROM {catalog}.sys.indexes AS i
LEFT JOIN {catalog}.sys.index_columns AS k
    ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.key_ordinal > 0
LEFT JOIN {catalog}.sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.object_id = ? AND i.type IN (0, 1, 2) AND i.is_disabled = 0 AND i.is_hypothetical = 0
ORDER BY i.index_id, k.key_ordinal
