-- insert.sql · SQL Server · sends messages
-- in: the messages as JSON [[n, id, time to be received, headers, body, correlation id, reply-to address],…]
-- out: number of rows
-- Needs INSERT on the table, not SELECT. {columns} are those of the seven that the table has, quoted, the same list
-- twice: Recoverable is being removed, old columns are not everywhere, and a computed column takes no value.
-- CAST: a long text arrives as ntext, which OPENJSON refuses. OPENJSON decodes Base64 where it is asked for varbinary.
-- ORDER BY makes the identity follow the list. A time to be received (milliseconds or NULL) counts from now by the
-- database's clock; DATEADD takes an int, so it is added in two parts.
INSERT INTO {queue} ({columns})
SELECT {columns}
FROM (
    SELECT j.n,
           j.Id,
           j.CorrelationId,
           j.ReplyToAddress,
           CAST(1 AS bit) AS Recoverable,
           DATEADD(millisecond, j.ttl % 1000, DATEADD(second, j.ttl / 1000, GETUTCDATE())) AS Expires,
           j.Headers,
           j.Body
    FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (
        n int '$[0]',
        Id uniqueidentifier '$[1]',
        ttl bigint '$[2]',
        Headers nvarchar(max) '$[3]',
        Body varbinary(max) '$[4]',
        CorrelationId nvarchar(255) '$[5]',
        ReplyToAddress nvarchar(255) '$[6]'
    ) AS j
) AS m
ORDER BY m.n
