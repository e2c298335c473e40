-- stage_insert.sql · PostgreSQL · puts messages on the stage
-- in: COPY's binary stream of rows: task, destination, and arrays of Ids, times of expiry, headers, bodies
-- out: number of rows
COPY {stage} (task, destination, ids, expires, headers, bodies) FROM STDIN (FORMAT binary)
