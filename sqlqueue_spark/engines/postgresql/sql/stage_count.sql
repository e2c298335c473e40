-- stage_count.sql · PostgreSQL · how many messages tasks have on a stage
-- in: tasks, after which seq     out: task, messages
SELECT task, sum(cardinality(ids))::bigint
FROM {stage}
WHERE task = ANY (?::text[]) AND seq > ?
GROUP BY task
