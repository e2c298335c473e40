CREATE NONCLUSTERED INDEX Index_DispatchedAt ON [dbo].[Sales_Orders_OutboxData] (DispatchedAt) WHERE Dispatched = 1
