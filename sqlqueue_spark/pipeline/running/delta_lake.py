"""Delta Lake for this Spark: its package, its settings, and what a session lacks of them.

For each user a note says where the jars of the package are, so that only the first start asks Maven's
repository: to ask costs each start a second, and half a minute where there is no network.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyspark
from py4j.java_gateway import JavaClass  # type: ignore[import-untyped] # it ships neither
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # likewise
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.own_file import OwnFile, changed_by_others
from sqlqueue_spark.pipeline.running.settings_files import CONF, settings_in, spark_home
from sqlqueue_spark.version import pip_install

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
    if (delta := _delta_version()) is None:
        raise ConfigurationError(
            "Delta Lake is not installed (there is no package delta-spark); "
            f"install it with: {pip_install('spark')}."
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


def check_delta(spark: SparkSession) -> None:
    """:raises ConfigurationError: the session has no Delta Lake; the text says what to start it with."""
    if (lacking := lacks_delta(spark)) is not None:
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
    with suppress(PackageNotFoundError):
        return version(DELTA)
    return None


def fetches_delta(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """Whether Spark fetches Delta's package and no other, by our settings and the user's."""
    return PACKAGES in ours and not {PACKAGES, JARS} & theirs.keys()


def fetched(package: str) -> str | None:
    """The urls of a package's jars, as in the setting spark.jars; None where they must be fetched.

    A jar, or a note, that another user could have written is not used: Spark runs what is in a jar.
    """
    with suppress(OSError, RuntimeError, ValueError):
        note = _note(package)
        jars = note.read_text(encoding="utf-8").strip() if changed_by_others(note.parent) is None else ""
        files = [Path(unquote(urlsplit(each).path)) for each in jars.split(",")]
        if all(each.is_file() and changed_by_others(each) is None for each in files):
            return jars
    return None


def remember(package: str, jars: str) -> None:
    """Note where Spark has put the jars of a package. Where that cannot be written, Spark asks again."""
    if not all(each.startswith("file:") for each in jars.split(",")):
        return
    with suppress(OSError, RuntimeError):
        note = _note(package)
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if changed_by_others(note.parent) is None:
            OwnFile(note).write(jars)


def _note(package: str) -> Path:
    """The file in the user's cache folder. Raises RuntimeError if the user has no home."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return cache / "sqlqueue" / f"{package.replace(':', '-')}.jars"
