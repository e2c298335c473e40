-- create.sql · SQL Server · creates a queue table: the classic one
-- The caller has looked, under the lock, that it is not there. The clustered index keeps rows in RowVersion order
-- and gives pages back as they empty, which a heap does not. Index_Expires finds expired rows without a scan.
CREATE TABLE {queue} (
    Id uniqueidentifier NOT NULL,
    CorrelationId varchar(255) NULL,
    ReplyToAddress varchar(255) NULL,
    Recoverable bit NOT NULL,
    Expires datetime NULL,
    Headers nvarchar(max) NOT NULL,
    Body varbinary(max) NULL,
    RowVersion bigint IDENTITY(1,1) NOT NULL
);
CREATE CLUSTERED INDEX Index_RowVersion ON {queue} (RowVersion);
CREATE NONCLUSTERED INDEX Index_Expires ON {queue} (Expires) INCLUDE (Id, RowVersion);
