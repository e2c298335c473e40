-- outbox_index_dispatched_at.sql · SQL Server · the index that the cleanup goes by
CREATE NONCLUSTERED INDEX Index_DispatchedAt ON {outbox} (DispatchedAt) WHERE Dispatched = 1
