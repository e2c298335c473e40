ALTER TABLE [dbo].[orders] ALTER COLUMN Headers nvarchar(max) NOT NULL;
