CREATE TABLE [dbo].[billing.Outgoing] (
    Task varchar(36) COLLATE Latin1_General_BIN2 NOT NULL,
    Destination nvarchar(776) COLLATE Latin1_General_BIN2 NOT NULL,
    Id uniqueidentifier NULL,
    CorrelationId nvarchar(255) NULL,
    ReplyToAddress nvarchar(255) NULL,
    Recoverable bit NULL,
    Expires datetime NULL,
    Headers nvarchar(max) NOT NULL,
    Body varbinary(max) NULL,
    RowVersion bigint IDENTITY(1,1) NOT NULL
)
