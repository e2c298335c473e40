"""Delta Lake for this Spark: its package, its settings, and what a session lacks of them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyspark
from py4j.java_gateway import JavaClass  # type: ignore[import-untyped] # it ships neither
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # likewise
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.pipeline.running.spark_defaults import CONF, settings_in, spark_home

JARS, PACKAGES = "spark.jars", "spark.jars.packages"
#: Without these Delta's own jar refuses to write. https://docs.delta.io/latest/quick-start.html
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
#: The name of the wheel, of the package and of the jar's file, before their versions.
DELTA = "delta-spark"
#: The settings that are lists, and the text that a list has where Delta's item need not be added.
LISTS = {PACKAGES: DELTA, "spark.sql.extensions": DELTA_SETTINGS["spark.sql.extensions"]}


def delta_package() -> str:
    """The coordinates of the jar that belongs to Delta Lake's wheel and to this Spark.

    :raises ConfigurationError: the wheel is not installed.
    """
    delta = _delta_version()
    if delta is None:
        raise ConfigurationError(
            "Delta Lake is not installed (there is no package delta-spark); "
            "install it with: pip install 'sqlqueue_spark[spark]'."
        )
    spark = ".".join(pyspark.__version__.split(".")[:2])
    scala = "2.13"
    artifact = f"{DELTA}_{scala}" if delta.startswith("4.0.") else f"{DELTA}_{spark}_{scala}"
    return f"io.delta:{artifact}:{delta}"


def with_delta(settings: Mapping[str, str], theirs: Mapping[str, str], *, wanted: bool) -> dict[str, str]:
    """Settings of this package with the Delta Lake that belongs to the wheel, or without any.

    :param theirs: the user's settings. No jar is fetched where these, or Spark itself, have Delta's.
    :raises ConfigurationError: Delta Lake is wanted, and its wheel is not installed.
    """
    if not wanted:
        return {key: value for key, value in settings.items() if "delta" not in key + value}
    with_wheels = {**settings, PACKAGES: delta_package()}
    of_spark = (each.name for each in (spark_home() / "jars").glob("*.jar"))
    if any(DELTA in each for each in (theirs.get(JARS, ""), *of_spark)):
        del with_wheels[PACKAGES]
    return with_wheels


def not_fetched(package: str) -> str:
    """What may be in the way of a Spark that fetches a package, as a sentence with a blank before it."""
    return (
        f" The first time it fetches {package} from Maven's repository; where there is no way to that, "
        "name a mirror in the file of the setting spark.jars.ivySettings, or bring the jars with spark.jars."
    )


def check_delta(spark: SparkSession) -> None:
    """:raises ConfigurationError: the session has no Delta Lake; the text says what to start it with."""
    lacking = lacks_delta(spark)
    if lacking is not None:
        package = settings_in(CONF)[PACKAGES] if _delta_version() is None else delta_package()
        settings = " ".join(f"--conf {key}={value}" for key, value in DELTA_SETTINGS.items())
        raise ConfigurationError(
            f"This Spark session has no Delta Lake ({lacking}); start it with: spark-submit --packages "
            f"{package} {settings}, or set {PACKAGES} and these two "
            "in the spark-defaults.conf of SPARK_CONF_DIR."
        )


def lacks_delta(spark: SparkSession) -> str | None:
    """What a session lacks to write a Delta table, in a few words; None if nothing, or if we cannot tell."""
    if not knows(spark, "delta"):
        return "its jar is not there"
    if not is_reachable(spark):
        return None
    extensions, catalog = DELTA_SETTINGS
    if DELTA_SETTINGS[extensions] not in (spark.conf.get(extensions, None) or "").split(","):
        return f"{extensions} does not name {DELTA_SETTINGS[extensions]}"
    # Another catalog than Delta's own may know Delta, too.
    return None if spark.conf.get(catalog, None) else f"{catalog} is not set"


def is_reachable(spark: SparkSession) -> bool:
    """Whether we can ask the JVM and its Delta Lake: not through Spark Connect, nor another Delta."""
    jvm = getattr(spark, "_jvm", None)
    return jvm is not None and isinstance(jvm.org.apache.spark.sql.delta.DeltaLog, JavaClass)


def knows(spark: SparkSession, source: str) -> bool:
    """Whether a session knows a format of ``spark.read``; True if we cannot tell (Spark Connect)."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return True
    conf = spark._jsparkSession.sessionState().conf()  # noqa: SLF001 -- no other way asks Spark for a format
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(source, conf)
    except (Py4JJavaError, PySparkException):
        return False
    return True


def _delta_version() -> str | None:
    try:
        return version(DELTA)
    except PackageNotFoundError:
        return None
