-- outbox_index_dispatched.sql · PostgreSQL · the index that rows not dispatched are found by
-- Its name carries the table's, as that of outbox_index_dispatched_at.sql.
CREATE INDEX IF NOT EXISTS {dispatched} ON {outbox} ("Dispatched")
