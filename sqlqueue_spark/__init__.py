"""Apache Spark as a full citizen of message systems that live in SQL tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__version__ = "0.1.0"
__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``format("sqlqueue")`` known to a session by hand, for Spark Connect and ``--py-files``."""
    from sqlqueue_spark.source import SqlQueueDataSource

    spark.dataSource.register(SqlQueueDataSource)
