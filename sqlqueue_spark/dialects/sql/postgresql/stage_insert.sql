-- stage_insert.sql · PostgreSQL · puts messages on the stage
-- in: COPY's binary stream of task, destination, Id, time of expiry, headers, body     out: number of rows
COPY {stage} (task, destination, id, expires, headers, body) FROM STDIN (FORMAT binary)
