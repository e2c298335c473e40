-- stage_storage.sql · SQL Server · stores the rows of a stage in their order, so that a chunk is a range
CREATE CLUSTERED INDEX Index_RowVersion ON {stage} (RowVersion)
