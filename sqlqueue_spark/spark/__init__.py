"""Translates between Spark and us, and decides nothing: data source, readers, writers, sink."""
