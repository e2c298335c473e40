UPDATE s
SET Headers = ?
FROM [dbo].[billing.Outgoing] AS s WITH (ROWLOCK, INDEX (Index_Mark))
WHERE s.Task = ''
