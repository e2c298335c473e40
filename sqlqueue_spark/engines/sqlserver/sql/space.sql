-- space.sql · SQL Server · how much of a heap is dead
-- in: object id of the table     out: pages, live rows, dead rows (unknown: 0), seconds since maintenance (unknown: 0)
-- No row for a table with a clustered index, which gives its pages back. In-row pages only (type 1): large bodies lie
-- elsewhere, and every row lies on one such page. The catalogue tells as much as sys.dm_db_partition_stats, which
-- needs VIEW DATABASE STATE.
SELECT SUM(a.used_pages), SUM(p.rows), CAST(0 AS bigint), CAST(0 AS bigint)
FROM {catalog}.sys.partitions AS p
JOIN {catalog}.sys.allocation_units AS a ON a.container_id = p.hobt_id AND a.type = 1
WHERE p.object_id = ? AND p.index_id = 0
GROUP BY p.object_id
