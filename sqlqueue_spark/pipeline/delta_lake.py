"""Whether a Spark session has Delta Lake, and what it lacks to write a Delta table."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped] # it ships neither
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # likewise
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

#: Without these Delta's own jar refuses to write. https://docs.delta.io/latest/quick-start.html
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def is_reachable(spark: SparkSession) -> bool:
    """Whether we can ask the JVM's Delta Lake: not through Spark Connect, nor another product's Delta."""
    jvm = getattr(spark, "_jvm", None)
    return jvm is not None and isinstance(jvm.org.apache.spark.sql.delta.DeltaLog, JavaClass)


def knows(spark: SparkSession, source: str) -> bool:
    """Whether a session knows this format of ``spark.read``; True through Spark Connect: we cannot ask."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return True
    conf = spark._jsparkSession.sessionState().conf()  # noqa: SLF001 -- no other way asks Spark for a format
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(source, conf)
    except (Py4JJavaError, PySparkException):
        return False
    return True


def lacks_delta(spark: SparkSession) -> str | None:
    """What a session lacks to write a Delta table, in a few words; None if nothing, or if we cannot ask."""
    if not knows(spark, "delta"):
        return "its jar is not there"
    if not is_reachable(spark):
        return None
    extensions, catalog = DELTA_SETTINGS
    if DELTA_SETTINGS[extensions] not in (spark.conf.get(extensions, None) or "").split(","):
        return f"{extensions} does not name {DELTA_SETTINGS[extensions]}"
    # Another catalog than Delta's own may know Delta, too.
    return None if spark.conf.get(catalog, None) else f"{catalog} is not set"
