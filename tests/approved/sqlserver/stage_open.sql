INSERT INTO [dbo].[billing.Outgoing] (Task, Destination, Headers) VALUES ('', N'', ?)
