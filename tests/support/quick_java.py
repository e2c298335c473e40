"""Java that starts quickly rather than works fast, for children that live for some seconds.

Most of a start is loading the same 20,000 classes. Java keeps them in an archive that is made once, beside the folder
of Spark to which it belongs, and ignored by Java itself when it no longer fits.
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

import fcntl
import functools
import os
import subprocess
import sys
from pathlib import Path

from tests.support.spark_home import spark_home

_ROOT = Path(__file__).parents[2]
_ARCHIVE = spark_home() / "classes.jsa"
_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"
_SPARK = (
    "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN "
    "--conf spark.sql.adaptive.enabled=false --conf spark.databricks.delta.stats.collect=false pyspark-shell"
)


@functools.cache
def quick() -> dict[str, str]:
    """The environment of such a child."""
    with _ARCHIVE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _ARCHIVE.exists():
            begun = _ARCHIVE.with_suffix(".new")
            _run_once(f"-XX:ArchiveClassesAtExit={begun}")
            begun.rename(_ARCHIVE)
    return quick_java() | {"PYSPARK_SUBMIT_ARGS": _SPARK}


def quick_java() -> dict[str, str]:
    """The environment of a program whose Spark has all its usual settings, and only Java starts quickly.

    Nobody waits here for the archive to be made.
    """
    return _environment(f"-XX:SharedArchiveFile={_ARCHIVE}" if _ARCHIVE.exists() else "")


def _run_once(option: str) -> None:
    """A child that ends in good order. Without an archive everything works too, only slower."""
    more = {"PYSPARK_SUBMIT_ARGS": _SPARK, "PYTHONPATH": str(_ROOT)}
    subprocess.run(
        [sys.executable, "-m", "tests.support.drivers.warm"],
        cwd=_ROOT, env=os.environ | _environment(option) | more,
        capture_output=True, check=True, timeout=300,
    )  # fmt: skip


def _environment(option: str) -> dict[str, str]:
    return {"SPARK_HOME": str(spark_home()), "JDK_JAVA_OPTIONS": f"{_OPTIONS} {option}"}
