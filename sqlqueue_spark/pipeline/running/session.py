"""The Spark session of a job: the one that is there, else a new one in which the settings of the user win."""

import os
import re
import sys
from collections.abc import Mapping

import click
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.pipeline.running import delta_lake
from sqlqueue_spark.pipeline.running.delta_lake import JARS, LISTS, PACKAGES, fetches_delta
from sqlqueue_spark.pipeline.running.java_start import start_java
from sqlqueue_spark.pipeline.running.settings_files import CONF, settings_in, users_folder

#: How Spark's own launchers say that Spark runs already, or where.
_RUNS = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
#: The options of the Java that this process starts; where else the user may give some.
_JAVA = "spark.driver.extraJavaOptions"
_JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
#: An option that tunes Java; an archive of classes does not.
_TUNES = re.compile(r"-XX:(?!SharedArchiveFile|ArchiveClassesAtExit)")
_LOG = "log4j2.configurationFile"
#: The ends of the names of the files in which Log4j finds its configuration.
_LOG_FILES = ("properties", "xml", "json", "jsn", "yaml", "yml")
_DAEMON = "spark.python.daemon.module"
_ONE_MACHINE = (_DAEMON, "spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions", _JAVA)
#: What may be in the way of a Spark that fetches a package.
_NOT_FETCHED = (
    " The first time it fetches {} from Maven's repository; where there is no way to that, name a mirror in "
    "the file of the setting spark.jars.ivySettings, or bring the jars with spark.jars."
)


def session(name: str, *, delta: bool = True, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session that is there, else a new one of this name.

    :param delta: whether the job needs Delta Lake. The first start fetches its jars from Maven's repository.
    :param settings: further ones, for a session that this process starts.
    :raises ConfigurationError: Spark does not start, or it has no Delta Lake.
    """
    theirs, ours = dict[str, str](), dict[str, str]()
    if is_ours():
        theirs = settings_in(users_folder())
        _set_environment(theirs)
        ours = missing_settings(theirs, delta=delta) | dict(settings or {})
        if fetches_delta(ours, theirs):
            click.echo(f"Spark fetches {ours[PACKAGES]} from Maven's repository, once.", err=True)
    try:
        if is_ours():
            start_java({**ours, "spark.app.name": name})
        spark = SparkSession.builder.appName(name).config(map={**ours}).getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        hint = _NOT_FETCHED.format(ours[PACKAGES]) if PACKAGES in ours else ""
        raise ConfigurationError(f"Spark did not start; what it said stands above.{hint}") from error
    if delta:
        delta_lake.check_delta(spark)
        if fetches_delta(ours, theirs):
            delta_lake.remember(ours[PACKAGES], spark.conf.get(JARS, None) or "")
    return spark


def missing_settings(theirs: Mapping[str, str], *, delta: bool) -> dict[str, str]:
    """What a session that this process starts is given: our settings that the user's leave open."""
    ours = delta_lake.with_delta(settings_in(CONF), theirs, wanted=delta)
    ours[_DAEMON] = "sqlqueue_spark.spark.worker_daemon"
    # Settings for one machine stay out of a cluster's way.
    if not theirs.get("spark.master", "local").startswith("local"):
        ours = {key: value for key, value in ours.items() if key not in _ONE_MACHINE}
    # Java that the user has tuned is not tuned again: it would not start with two collectors.
    said = [os.environ.get(each, "") for each in _JAVA_VARIABLES]
    said.append(theirs.get("spark.driver.defaultJavaOptions", ""))
    java_options = [] if any(map(_TUNES.search, said)) else [ours.get(_JAVA, "")]
    # The log that the user has configured stays.
    files = (users_folder() / f"log4j2.{each}" for each in _LOG_FILES)
    if not (any(_LOG in each for each in said) or any(each.is_file() for each in files)):
        java_options.append(f"-D{_LOG}={(CONF / 'log4j2.properties').as_uri()}")
    ours[_JAVA] = " ".join(filter(None, java_options))
    # What the user's file says wins, and its lists are added to.
    added = {
        key: f"{theirs[key]},{ours[key]}"
        for key, text in LISTS.items()
        if key in ours and key in theirs and text not in theirs[key]
    }
    ours = {key: value for key, value in ours.items() if value and key not in theirs} | added
    # Delta's jars that were fetched before are not asked for again.
    if fetches_delta(ours, theirs) and (jars := delta_lake.fetched(ours[PACKAGES])) is not None:
        del ours[PACKAGES]
        ours[JARS] = jars
    return ours


def runs() -> bool:
    """Whether a Spark runs already for this process, or elsewhere."""
    there = SparkContext._gateway is not None  # noqa: SLF001 -- Spark has no other word for it
    return there or SparkSession.getActiveSession() is not None or any(each in os.environ for each in _RUNS)


def is_ours() -> bool:
    """Whether this process starts Spark, and the environment does not say with which arguments."""
    return not runs() and "PYSPARK_SUBMIT_ARGS" not in os.environ


def _set_environment(theirs: Mapping[str, str]) -> None:
    """Let Spark run its workers in this Python and listen on this machine alone, unless that is set."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts no threads in each Python process
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # no file of the working folder takes a module's place
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    if "spark.master" not in theirs:
        # Else Spark looks up its own host name, and fails where that name is odd.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
