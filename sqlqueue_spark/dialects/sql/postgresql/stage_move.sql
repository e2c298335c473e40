-- stage_move.sql · PostgreSQL · sends staged messages to their destination, in the order of the stage
-- in: destination, tasks, after which seq, up to which     out: number of rows
-- Only rows of tasks that Spark has accepted: a twin, or a task of an attempt that failed, may have left others.
-- {columns} are those of the destination.
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM {stage}
WHERE destination = ? AND task = ANY (?::text[]) AND seq > ? AND seq <= ?
ORDER BY seq
