CREATE TABLE IF NOT EXISTS `Shop_Sales_OutboxData` (
    MessageId nvarchar(200) NOT NULL,
    Dispatched bit NOT NULL DEFAULT 0,
    DispatchedAt datetime,
    PersistenceVersion varchar(23) NOT NULL,
    Operations json NOT NULL,
    PRIMARY KEY (MessageId),
    INDEX Index_DispatchedAt (DispatchedAt),
    INDEX Index_Dispatched (Dispatched)
) DEFAULT CHARSET = ascii
;
