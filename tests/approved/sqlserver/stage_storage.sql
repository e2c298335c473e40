CREATE CLUSTERED INDEX Index_RowVersion ON [dbo].[billing.Outgoing] (RowVersion)
