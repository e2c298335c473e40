-- stage_create.sql · SQL Server · creates the table in which an atomic pipeline puts what it sends, until the batch is settled
-- The caller has looked, under the lock, that it is not there. One row, the mark, has no task: its headers say which
-- claim the stage belongs to and whose rows count.
-- Latin1_General_BIN2 tells every two names apart.
CREATE TABLE {stage} (
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
