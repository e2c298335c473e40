-- outbox_create.sql · Oracle · creates an endpoint's outbox table: that of the .NET persistence, with its index
-- Effect: none where they are there already (ORA-00955), which is looked at last: so it is safe in a race. Each statement
-- commits by itself.
DECLARE
    exists_already EXCEPTION;
    PRAGMA EXCEPTION_INIT(exists_already, -955);
BEGIN
    BEGIN
        EXECUTE IMMEDIATE 'CREATE TABLE {outbox} (
            MessageId nvarchar2(200) NOT NULL,
            Dispatched number(1,0) DEFAULT 0 NOT NULL CHECK (Dispatched IN (0, 1)),
            DispatchedAt timestamp,
            Operations clob NOT NULL,
            PersistenceVersion varchar2(23) NOT NULL,
            CONSTRAINT {primary_key} PRIMARY KEY (MessageId)
        )';
    EXCEPTION
        WHEN exists_already THEN NULL;
    END;
    BEGIN
        EXECUTE IMMEDIATE 'CREATE INDEX {dispatched_at} ON {outbox} (Dispatched, DispatchedAt)';
    EXCEPTION
        WHEN exists_already THEN NULL;
    END;
END;
