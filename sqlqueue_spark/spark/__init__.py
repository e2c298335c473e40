"""Translates between Spark and us, and decides nothing: the data source, its readers and writers, the sink."""
