"""The Spark session of a job that people start by its name, without spark-submit: it brings Delta Lake itself, where it needs it."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

import pyspark
from pyspark.sql import SparkSession

#: What Spark's own launchers and configurations set: whoever used one has said what Spark is to be like.
_CONFIGURED = ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")
_SCALA = "2.13"
_QUIET = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",  # it would write over the job's own lines
}


def session(name: str, *, delta: bool = True) -> SparkSession:
    """The session that is there, else a new one of this name. With Delta Lake, where nobody has configured Spark.

    :param delta: whether the job needs Delta Lake, which takes seconds and, the first time, a way to Maven's repository.
    """
    builder = SparkSession.builder.appName(name)
    if SparkSession.getActiveSession() is None and not any(each in os.environ for each in _CONFIGURED):
        for key, value in (on_one_machine() if delta else _QUIET).items():
            builder = builder.config(key, value)
    return builder.getOrCreate()


def on_one_machine() -> dict[str, str]:
    """The settings of conf/spark-defaults.conf, with the Delta Lake whose wheel is installed; none where there is none."""
    try:
        delta = version("delta-spark")
    except PackageNotFoundError:
        return {}
    spark = ".".join(pyspark.__version__.split(".")[:2])
    return {
        "spark.jars.packages": f"io.delta:delta-spark_{spark}_{_SCALA}:{delta}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        **_QUIET,
    }
