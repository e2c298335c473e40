-- outbox_seen.sql · SQL Server · which of some message ids are there
-- in: message ids as JSON     out: message id, as it was asked for
-- READCOMMITTEDLOCK waits for an id that somebody else has inserted and not committed, which row versions would not
-- show: the less is sent in vain. FORCESEEK and LOOP: each id is looked up in the primary key. FAST 1:
-- no reading ahead, which would keep the locks of ids that were looked up while the next one is waited for.
SELECT j.MessageId
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (MessageId nvarchar(200) '$') AS j
INNER LOOP JOIN {outbox} AS o WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON o.MessageId = j.MessageId
OPTION (FAST 1)
