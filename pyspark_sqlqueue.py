"""Makes ``format("sqlqueue")`` known to Spark, which imports modules named ``pyspark_*`` for their
DefaultSource.

An import error here would break the look-up of every Python data source, so a missing part only hides ours.
"""

try:
    from sqlqueue_spark.spark.datasource import SqlQueueDataSource as DefaultSource
except ImportError:
    pass
else:
    __all__ = ["DefaultSource"]
