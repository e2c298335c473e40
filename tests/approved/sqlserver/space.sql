SELECT SUM(a.used_pages), SUM(p.rows), CAST(0 AS bigint), CAST(0 AS bigint)
FROM [shop].sys.partitions AS p
JOIN [shop].sys.allocation_units AS a ON a.container_id = p.hobt_id AND a.type = 1
WHERE p.object_id = ? AND p.index_id = 0
GROUP BY p.object_id
