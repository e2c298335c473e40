-- stage_insert.sql · SQL Server · puts messages on the stage
-- in: the task; the messages as JSON [[n, id, time of expiry, headers, body, correlation id, reply-to, destination],…]
-- out: number of rows
-- As insert.sql; every queue that has the column Recoverable wants it to be 1.
INSERT INTO {stage} (Task, Destination, Id, CorrelationId, ReplyToAddress, Recoverable, Expires, Headers, Body)
SELECT ?, j.Destination, j.Id, j.CorrelationId, j.ReplyToAddress, CAST(1 AS bit), j.Expires, j.Headers, j.Body
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (
    n int '$[0]',
    Id uniqueidentifier '$[1]',
    Expires datetime2(3) '$[2]',
    Headers nvarchar(max) '$[3]',
    Body varbinary(max) '$[4]',
    CorrelationId nvarchar(255) '$[5]',
    ReplyToAddress nvarchar(255) '$[6]',
    Destination nvarchar(776) '$[7]'
) AS j
ORDER BY j.n
