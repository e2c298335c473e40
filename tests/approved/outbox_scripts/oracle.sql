DECLARE
    exists_already EXCEPTION;
    PRAGMA EXCEPTION_INIT(exists_already, -955);
BEGIN
    BEGIN
        EXECUTE IMMEDIATE 'CREATE TABLE "SHOP_SALES_OD" (
            MessageId nvarchar2(200) NOT NULL,
            Dispatched number(1,0) DEFAULT 0 NOT NULL CHECK (Dispatched IN (0, 1)),
            DispatchedAt timestamp,
            Operations clob NOT NULL,
            PersistenceVersion varchar2(23) NOT NULL,
            CONSTRAINT "SHOP_SALES_OD_PK" PRIMARY KEY (MessageId)
        )';
    EXCEPTION
        WHEN exists_already THEN NULL;
    END;
    BEGIN
        EXECUTE IMMEDIATE 'CREATE INDEX "SHOP_SALES_OD_IX" ON "SHOP_SALES_OD" (Dispatched, DispatchedAt)';
    EXCEPTION
        WHEN exists_already THEN NULL;
    END;
END;
/
