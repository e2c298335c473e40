-- outbox_create.sql · SQL Server · creates an endpoint's outbox table: that of the .NET persistence
-- The caller has looked, under the lock, that it is not there. A heap: message ids come in no order, so as a clustered key
-- they would split pages all over.
CREATE TABLE {outbox} (
    MessageId nvarchar(200) NOT NULL PRIMARY KEY NONCLUSTERED,
    Dispatched bit NOT NULL DEFAULT 0,
    DispatchedAt datetime NULL,
    PersistenceVersion varchar(23) NOT NULL,
    Operations nvarchar(max) NOT NULL
)
