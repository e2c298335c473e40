-- stage_try.sql · PostgreSQL · sends one staged message to its destination, for the caller to roll back
-- in: destination, tasks     out: number of messages
-- What a destination refuses (a missing right, a column that must be filled, a trigger) is so found before the batch is done.
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM (
    SELECT ids[1] AS id, expires[1] AS expires, headers[1] AS headers, bodies[1] AS body
    FROM {stage}
    WHERE destination = ? AND task = ANY (?::text[])
    ORDER BY seq
    LIMIT 1
) AS message
