"""The Spark session of a job: what nobody has configured is as for one machine, and what is missing is said before anything is received.

Whoever configures Spark has the last word. A session that is there, spark-submit, ``PYSPARK_SUBMIT_ARGS`` and Spark Connect are taken as they
are. Else this process starts Spark: with conf/spark-defaults.conf and conf/log4j2.properties of this package, but for what the user's own
files in ``SPARK_CONF_DIR`` say.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor.machine_checks import java
from sqlqueue_spark.pipeline.class_archive import with_archive
from sqlqueue_spark.pipeline.compiled_spark import compiled_spark
from sqlqueue_spark.pipeline.delta_lake import DELTA_SETTINGS, lacks_delta
from sqlqueue_spark.pipeline.fetched_jars import fetched, remember, without_sparks_own
from sqlqueue_spark.pipeline.warm_up import warm_up

#: The configuration of Spark and of the jobs, which a clone has as conf/.
CONF = Path(__file__).with_name("conf")
#: How Spark's own launchers say that Spark runs already, or where.
_RUNS = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
_JARS, _PACKAGES = "spark.jars", "spark.jars.packages"
_MASTER = "spark.master"
#: The setting with the options of the Java that this process starts.
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: The settings that are good for one machine alone, and where they lie in the way of a cluster.
_ONE_MACHINE = ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions", JAVA_OPTIONS)
#: The name of the jar's file, and of the package, before their versions.
_DELTA_JAR = "delta-spark"
#: The settings that are lists, and by which text a list shows that ours is in it.
_LISTS = {_PACKAGES: _DELTA_JAR, "spark.sql.extensions": DELTA_SETTINGS["spark.sql.extensions"]}
_LOG_SETTING = "log4j2.configurationFile"
#: Where else users say with which options Java runs.
_JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_LOG_FILES = {f"log4j2{suffix}" for suffix in (".properties", ".xml", ".json", ".jsn", ".yaml", ".yml")}
#: A name, then blanks, = or :, then the value. https://spark.apache.org/docs/latest/configuration.html#dynamically-loading-spark-properties
_SETTING = re.compile(r"^[ \t]*([^#!\s=:][^\s=:]*)[ \t]*[ \t=:][ \t]*(.*?)[ \t]*$", re.MULTILINE)


def check_machine(*, delta: bool = True) -> None:
    """Look whether this machine has what Spark needs to start, where it is this process that starts it.

    :param delta: whether the job writes into a Delta table.
    :raises SqlQueueError: Java is missing, or Delta Lake's package; the text says how to install it.
    """
    if not _runs():
        java()
    if delta and _is_ours():
        delta_package()


def session(name: str, *, delta: bool = True, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session that is there, else a new one of this name.

    :param delta: whether the job needs Delta Lake, whose jars are fetched from Maven's repository the first time.
    :param settings: further ones, for a session that this process starts.
    :raises ConfigurationError: Spark does not start, or it has no Delta Lake.
    """
    builder = SparkSession.builder.appName(name)
    ours: dict[str, str] = {}
    if _is_ours():
        ours = missing_settings(delta=delta)
        home = spark_home()
        if starts_soon(ours):
            ours[JAVA_OPTIONS] = with_archive(ours[JAVA_OPTIONS], home)
        ours |= settings or {}
    for key, value in ours.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise ConfigurationError(_not_started(ours.get(_PACKAGES))) from error
    if delta:
        check_delta(spark)
        if ours:
            warm_up(spark)
        if _PACKAGES in ours and ours[_PACKAGES] == delta_package():
            remember(ours[_PACKAGES], spark.conf.get(_JARS, None) or "")
    return spark


def check_delta(spark: SparkSession) -> None:
    """:raises ConfigurationError: the session has no Delta Lake; the text says what to start it with."""
    lacking = lacks_delta(spark)
    if lacking is not None:
        tested = _settings_in(CONF / "spark-defaults.conf")[_PACKAGES]
        package = tested if _delta_version() is None else delta_package()
        settings = " ".join(f"--conf {key}={value}" for key, value in DELTA_SETTINGS.items())
        raise ConfigurationError(
            f"This Spark session has no Delta Lake ({lacking}); start it with: spark-submit --packages {package} {settings}, or set "
            f"{_PACKAGES} and these two in the spark-defaults.conf of SPARK_CONF_DIR."
        )


def missing_settings(*, delta: bool) -> dict[str, str]:
    """What a session that this process starts is given: what the user's own files do not say. Their lists are added to."""
    folder = conf_folder()
    theirs = _settings_in(folder / "spark-defaults.conf")
    ours = on_one_machine(delta=delta)
    if not theirs.get(_MASTER, "local").startswith("local"):
        ours = {key: value for key, value in ours.items() if key not in _ONE_MACHINE}
    if _java_is_tuned(theirs):
        ours.pop(JAVA_OPTIONS, None)
    if not (_logs_elsewhere() or any((folder / each).is_file() for each in _LOG_FILES)):
        log = f"-D{_LOG_SETTING}={(CONF / 'log4j2.properties').as_uri()}"
        ours[JAVA_OPTIONS] = " ".join(filter(None, (ours.get(JAVA_OPTIONS), log)))
    if any(_DELTA_JAR in each for each in (theirs.get(_JARS, ""), *_jars_of_spark())):
        ours.pop(_PACKAGES, None)
    added = {
        key: f"{theirs[key]},{ours[key]}"
        for key, ours_is in _LISTS.items()
        if key in theirs and key in ours and ours_is not in theirs[key]
    }
    settings = {key: value for key, value in ours.items() if key not in theirs} | added
    if settings.get(_PACKAGES) == ours.get(_PACKAGES, "") and _JARS not in theirs:
        jars = fetched(settings[_PACKAGES])
        if jars is not None:
            del settings[_PACKAGES]
            settings[_JARS] = without_sparks_own(jars, _jars_of_spark())
    return settings


def starts_soon(settings: Mapping[str, str]) -> bool:
    """Whether Java has the options with which it starts soon, which it has not got where somebody else has tuned it."""
    return "-XX:" in settings.get(JAVA_OPTIONS, "")


def spark_home() -> Path:
    """Set the environment of a session that this process starts, and say where its Spark is."""
    _set_environment()
    return _home()


def conf_folder() -> Path:
    """Where Spark looks for the user's own files; the folder need not be there."""
    named = os.environ.get("SPARK_CONF_DIR")
    return Path(named) if named else _home() / "conf"


def on_one_machine(*, delta: bool) -> dict[str, str]:
    """The settings of conf/spark-defaults.conf, with the Delta Lake whose wheel is installed, or with none."""
    settings = _settings_in(CONF / "spark-defaults.conf")
    if delta:
        return {**settings, _PACKAGES: delta_package()}
    return {key: value for key, value in settings.items() if "delta" not in key + value}


def delta_package() -> str:
    """The coordinates of the jar that belongs to Delta Lake's wheel and to this Spark.

    :raises ConfigurationError: the wheel is not installed.
    """
    delta = _delta_version()
    if delta is None:
        raise ConfigurationError(
            "Delta Lake is not installed (there is no package delta-spark); install it with: pip install 'sqlqueue_spark[spark]'."
        )
    spark = ".".join(pyspark.__version__.split(".")[:2])
    scala = "2.13"
    artifact = f"{_DELTA_JAR}_{scala}" if delta.startswith("4.0.") else f"{_DELTA_JAR}_{spark}_{scala}"
    return f"io.delta:{artifact}:{delta}"


def _delta_version() -> str | None:
    try:
        return version("delta-spark")
    except PackageNotFoundError:
        return None


def _runs() -> bool:
    """Whether a Spark runs already for this process, or elsewhere."""
    started = SparkSession.getActiveSession() is not None or SparkContext._gateway is not None  # noqa: SLF001 -- Spark has no other word for it
    return started or any(each in os.environ for each in _RUNS)


def _is_ours() -> bool:
    """Whether this process starts Spark, and nobody has said with which arguments."""
    return not _runs() and "PYSPARK_SUBMIT_ARGS" not in os.environ


def _home() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _jars_of_spark() -> list[str]:
    """The names of the jars that are there without being named."""
    return [each.name for each in (_home() / "jars").glob("*.jar")]


def _settings_in(file: Path) -> dict[str, str]:
    return dict(_SETTING.findall(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _java_is_tuned(theirs: Mapping[str, str]) -> bool:
    """Whether the user has tuned Java elsewhere than in our setting; Java does not start with two collectors, for one."""
    said = (
        theirs.get("spark.driver.defaultJavaOptions", ""),
        *(os.environ.get(each, "") for each in _JAVA_VARIABLES),
    )
    return any("-XX:" in each for each in said)


def _logs_elsewhere() -> bool:
    """Whether the environment names a configuration of the log."""
    return any(_LOG_SETTING in os.environ.get(each, "") for each in ("JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"))


def _set_environment() -> None:
    """Say what Spark reads from the environment alone, unless it is said.

    Its workers run in the Python that runs this job, and not in the first one on the path. It listens on this machine alone: else it
    looks its own host name up, and fails where that name is odd. Its Python processes start sooner, also because numpy starts no threads
    in each of them; Spark limits its workers' threads itself.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    if _MASTER not in _settings_in(conf_folder() / "spark-defaults.conf"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if "SPARK_HOME" not in os.environ and (home := compiled_spark()) is not None:
            os.environ["SPARK_HOME"] = str(home)


def _not_started(package: str | None) -> str:
    said = "Spark did not start; what it said stands above"
    if package is None:
        return f"{said}."
    return (
        f"{said}. The first time it fetches {package} from Maven's repository; where there is no way to that, name a mirror in "
        "the file of the setting spark.jars.ivySettings, or bring the jars with spark.jars."
    )
