CREATE TABLE [dbo].[orders] (
    Id uniqueidentifier NOT NULL,
    CorrelationId varchar(255) NULL,
    ReplyToAddress varchar(255) NULL,
    Recoverable bit NOT NULL,
    Expires datetime NULL,
    Headers nvarchar(max) NOT NULL,
    Body varbinary(max) NULL,
    RowVersion bigint IDENTITY(1,1) NOT NULL
);
CREATE CLUSTERED INDEX Index_RowVersion ON [dbo].[orders] (RowVersion);
CREATE NONCLUSTERED INDEX Index_Expires ON [dbo].[orders] (Expires) INCLUDE (Id, RowVersion);
