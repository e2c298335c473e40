TRUNCATE TABLE [dbo].[billing.Outgoing]
