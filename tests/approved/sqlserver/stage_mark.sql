SELECT Headers
FROM [dbo].[billing.Outgoing] WITH (UPDLOCK, ROWLOCK, INDEX (Index_Mark))
WHERE Task = ''
OPTION (RECOMPILE)
