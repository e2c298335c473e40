-- outbox_index_dispatched_at.sql · PostgreSQL · the index that the cleanup goes by
-- Index names are per schema, so it carries the table's name: under a plain one the second outbox table of a schema
-- would go without.
CREATE INDEX IF NOT EXISTS {dispatched_at} ON {outbox} ("DispatchedAt")
