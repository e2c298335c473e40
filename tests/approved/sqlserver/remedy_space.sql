ALTER TABLE [dbo].[orders] REBUILD;
