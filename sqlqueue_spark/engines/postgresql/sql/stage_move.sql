-- stage_move.sql · PostgreSQL · sends staged messages to their destination, in the order of the stage
-- in: destination, tasks, after which seq, up to which     out: number of messages
-- Only rows of tasks that Spark has accepted: a twin, or a task of an attempt that failed, may have left others.
-- {columns} are those of the destination. The arrays of a row are taken apart side by side, in their order, and above the
-- sort, which so sees a few rows and no message (https://www.postgresql.org/docs/current/xfunc-sql.html, "SQL Functions
-- Returning Sets").
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM (
    SELECT unnest(ids) AS id, unnest(expires) AS expires, unnest(headers) AS headers, unnest(bodies) AS body
    FROM (
        SELECT ids, expires, headers, bodies
        FROM {stage}
        WHERE destination = ? AND task = ANY (?::text[]) AND seq > ? AND seq <= ?
        ORDER BY seq
    ) AS parts
) AS messages
