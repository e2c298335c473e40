"""Everything that imports pyspark but for the public modules: the data source, its readers and writers, the sink. Decides nothing."""
