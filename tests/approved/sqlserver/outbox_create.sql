CREATE TABLE [dbo].[Sales_Orders_OutboxData] (
    MessageId nvarchar(200) NOT NULL PRIMARY KEY NONCLUSTERED,
    Dispatched bit NOT NULL DEFAULT 0,
    DispatchedAt datetime NULL,
    PersistenceVersion varchar(23) NOT NULL,
    Operations nvarchar(max) NOT NULL
)
