GRANT SELECT ON [dbo].[Sales_Orders_OutboxData] TO [shop];
GRANT INSERT ON [dbo].[Sales_Orders_OutboxData] TO [shop];
GRANT DELETE ON [dbo].[Sales_Orders_OutboxData] TO [shop];
