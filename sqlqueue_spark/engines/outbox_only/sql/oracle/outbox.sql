-- outbox.sql · Oracle · the outbox table

-- name: outbox_exists
-- Returns whether an outbox table is there.
-- in: schema (NULL: the current one), table
SELECT t.table_name, CASE WHEN EXISTS (
    SELECT 1
    FROM sys.all_indexes i
    JOIN sys.all_ind_columns c ON c.index_owner = i.owner AND c.index_name = i.index_name
    WHERE i.table_owner = t.owner AND i.table_name = t.table_name AND i.uniqueness = 'UNIQUE'
    GROUP BY i.owner, i.index_name
    HAVING COUNT(*) = 1 AND MAX(c.column_name) = 'MESSAGEID'
) THEN 1 ELSE 0 END
FROM sys.all_tables t
WHERE t.owner = COALESCE(:schema, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND t.table_name = :name

-- name: outbox_create
-- Creates an endpoint's outbox table: that of the .NET persistence, with its index. Where table and index are
-- there already, the statement does nothing. It does not look first, but passes over the server's error
-- (ORA-00955), so it is safe in a race. Each statement in it commits by itself.
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

-- none: outbox_index_dispatched_at · outbox_create makes the index.
-- none: outbox_index_dispatched · one index serves both the cleanup and the look for rows that are not
--     dispatched.

-- name: outbox_seen
-- Returns which of some message ids are there.
-- TO_NCHAR gives the id the column's own type; without it the key would not serve. The hint makes the server
-- look up each id in the primary key.
SELECT /*+ LEADING(j) USE_NL(o) */ j.id
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
JOIN {outbox} o ON o.MessageId = TO_NCHAR(j.id)

-- name: outbox_seen_of
-- Returns which of some message ids outbox_add_new has inserted.
-- in: message ids as JSON, the mark of that call     out: message id, as it was asked for
-- An INSERT from a query does not return here what it has inserted. All else is as in outbox_seen.
SELECT /*+ LEADING(j) USE_NL(o) */ j.id
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
JOIN {outbox} o ON o.MessageId = TO_NCHAR(j.id)
WHERE o.PersistenceVersion = :version

-- name: outbox_add
-- Remembers message ids.
-- An id that is there already is ORA-00001. ORDER BY: twins insert in one order, so they do not deadlock.
INSERT INTO {outbox} (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT TO_NCHAR(j.id), 1, SYS_EXTRACT_UTC(SYSTIMESTAMP), :version, TO_CLOB('[]')
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
ORDER BY j.id

-- name: outbox_add_new
-- Remembers those of some message ids that are not there; outbox_seen_of returns which.
-- in: a mark of this call, message ids as JSON     out: nothing
-- The hint is no advice but an order: the server passes over a duplicate. ORDER BY as in outbox_add.
INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX(o (MessageId)) */ INTO {outbox} o
    (MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)
SELECT TO_NCHAR(j.id), 1, SYS_EXTRACT_UTC(SYSTIMESTAMP), :version, TO_CLOB('[]')
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id varchar2(200 CHAR) PATH '$')) j
ORDER BY j.id

-- none: outbox_oldest · no sink sends here, and what Outbox.process remembers has one form only.
-- none: outbox_has_outcomes · likewise.

-- name: outbox_clean
-- Forgets some message ids that are old enough.
-- No DELETE steps over locked rows here, so a second cleanup waits for the first. Senders insert other rows
-- and wait for neither.
DELETE FROM {outbox}
WHERE Dispatched = 1
  AND DispatchedAt < SYS_EXTRACT_UTC(SYSTIMESTAMP) - NUMTODSINTERVAL(:seconds, 'SECOND')
  AND ROWNUM <= 4000

-- name: outbox_report
-- Returns what an outbox table holds.
SELECT COUNT(*),
       COALESCE(SUM(CASE WHEN Dispatched = 0 THEN 1 ELSE 0 END), 0),
       MIN(CASE WHEN Dispatched = 1 THEN DispatchedAt END),
       SYS_EXTRACT_UTC(SYSTIMESTAMP)
FROM {outbox}
