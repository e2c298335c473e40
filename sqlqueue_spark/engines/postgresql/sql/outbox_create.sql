-- outbox_create.sql · PostgreSQL · creates an endpoint's outbox table: that of the .NET persistence
-- Effect: none where the table is there already. Its columns are spelled with capitals.
CREATE TABLE IF NOT EXISTS {outbox} (
    "MessageId" varchar(200) PRIMARY KEY,
    "Dispatched" boolean NOT NULL DEFAULT false,
    "DispatchedAt" timestamp,
    "PersistenceVersion" varchar(23),
    "Operations" jsonb NOT NULL
)
