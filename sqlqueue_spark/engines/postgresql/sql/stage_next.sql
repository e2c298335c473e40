-- stage_next.sql · PostgreSQL · how far the next messages of a destination reach on a stage
-- in: destination, tasks, after which seq, how many, at least as many as a row holds     out: the last seq or NULL
SELECT max(seq)
FROM (
    SELECT seq, sum(cardinality(ids)) OVER (ORDER BY seq) AS messages
    FROM {stage}
    WHERE destination = ? AND task = ANY (?::text[]) AND seq > ?
) AS next
WHERE messages <= ?
