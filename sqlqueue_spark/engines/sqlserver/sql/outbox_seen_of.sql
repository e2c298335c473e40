-- outbox_seen_of.sql · SQL Server · which of some message ids are there, written by one version
-- in: message ids as JSON, the version of their writer     out: message id, as it was asked for
-- Rows of others say nothing here: what a .NET endpoint has handled was not sent by us. Else as outbox_seen.sql; the version is
-- looked at in the row, behind the key.
SELECT j.MessageId
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (MessageId nvarchar(200) '$') AS j
INNER LOOP JOIN {outbox} AS o WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON o.MessageId = j.MessageId
WHERE o.PersistenceVersion = CAST(? AS varchar(23))
OPTION (FAST 1)
