-- stage_next.sql · PostgreSQL · how far the next rows of a destination reach on a stage
-- in: destination, tasks, after which seq, how many     out: the last seq or NULL
SELECT max(seq)
FROM (
    SELECT seq
    FROM {stage}
    WHERE destination = ? AND task = ANY (?::text[]) AND seq > ?
    ORDER BY seq
    LIMIT ?
) AS next
