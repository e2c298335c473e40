-- outbox_create.sql · MySQL · creates an endpoint's outbox table: that of the .NET persistence
-- Effect: none where the table is there already; in a race one waits for the other. The statement commits by itself.
CREATE TABLE IF NOT EXISTS {outbox} (
    MessageId nvarchar(200) NOT NULL,
    Dispatched bit NOT NULL DEFAULT 0,
    DispatchedAt datetime,
    PersistenceVersion varchar(23) NOT NULL,
    Operations json NOT NULL,
    PRIMARY KEY (MessageId),
    INDEX Index_DispatchedAt (DispatchedAt),
    INDEX Index_Dispatched (Dispatched)
) DEFAULT CHARSET = ascii
