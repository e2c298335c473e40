-- send.sql · SQL Server · what a sender says to a queue table

-- name: isolation
-- Isolates the transactions of a connection.
-- in: the level, written into the text: the server undoes what a batch with parameters SETs at its end
-- It refuses SNAPSHOT with error 3952 until the database allows it (ALTER DATABASE … SET
-- ALLOW_SNAPSHOT_ISOLATION ON).
SET TRANSACTION ISOLATION LEVEL :level

-- name: insert
-- Sends messages to a queue, or stores them in a table of delayed messages.
-- in: the messages as JSON [[n, id, time of expiry or delivery, headers, body, correlation id, reply-to
--     address, recoverable],…]
-- {columns} are those of the seven columns that the table has, quoted, and Due; {values} as in stage_move.
-- Not every table has all seven: Recoverable is being removed, some tables lack older columns, and a
-- computed column takes no value. A table of delayed messages has no Ids here. CAST: a long text arrives as
-- ntext, which OPENJSON refuses. OPENJSON decodes Base64 where varbinary is asked for. ORDER BY makes the
-- identity follow the list. Times are in UTC, or NULL. Where nothing says whether a message is recoverable,
-- as a sender's messages do not, it is.
INSERT INTO {queue} ({columns})
SELECT {values}
FROM (
    SELECT j.n,
           j.Id,
           j.CorrelationId,
           j.ReplyToAddress,
           COALESCE(j.Recoverable, CAST(1 AS bit)) AS Recoverable,
           j.Expires,
           j.Headers,
           j.Body
    FROM OPENJSON(CAST(:messages AS nvarchar(max))) WITH (
        n int '$[0]',
        Id uniqueidentifier '$[1]',
        Expires datetime2(3) '$[2]',
        Headers nvarchar(max) '$[3]',
        Body varbinary(max) '$[4]',
        CorrelationId nvarchar(255) '$[5]',
        ReplyToAddress nvarchar(255) '$[6]',
        Recoverable bit '$[7]'
    ) AS j
) AS m
ORDER BY m.n
OPTION (MAX_GRANT_PERCENT = 10)

-- none: row_security · insert is right in any case.
-- none: insert_by_policy · a security policy lets insert run, and refuses single rows.
