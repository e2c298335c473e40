CREATE NONCLUSTERED INDEX [Index_RowVersion] ON [dbo].[orders] (RowVersion);
