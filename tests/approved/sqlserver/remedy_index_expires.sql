CREATE NONCLUSTERED INDEX [Index_RowVersion] ON [dbo].[orders] (Expires) INCLUDE (Id, RowVersion);
