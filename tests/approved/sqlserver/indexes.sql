SELECT i.name, c.name, i.is_unique, LOWER(i.type_desc), i.filter_definition
FROM [shop].sys.indexes AS i
LEFT JOIN [shop].sys.index_columns AS k
    ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.key_ordinal > 0
LEFT JOIN [shop].sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.object_id = ? AND i.type IN (0, 1, 2) AND i.is_disabled = 0 AND i.is_hypothetical = 0
ORDER BY i.index_id, k.key_ordinal
