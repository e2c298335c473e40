"""Makes Java start quickly rather than work fast, for children that live for some seconds.

Most of a start goes into loading the same 20,000 classes. Java can keep them in an archive. We make it once, beside the
folder of the Spark to which it belongs. Java ignores an archive that no longer fits.
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from tests.support.spark_home import spark_home

_ROOT = Path(__file__).parents[2]
_ARCHIVE = spark_home() / "classes.jsa"
#: With one compiler Java has little room for compiled code, and looks for what it might throw away again and again.
_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:-UseCodeCacheFlushing -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"
)
_SPARK = (
    "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN "
    "-Dspark.sql.adaptive.enabled=false -Dspark.databricks.delta.stats.collect=false"
)


def quick(*more: str) -> dict[str, str]:
    """The environment of a child whose Java starts quickly, with settings of Spark for few rows.

    :param more: further options of Java.
    """
    if not _ARCHIVE.exists():
        _make_archive()
    return _environment(" ".join((_SPARK, _shared(), *more)))


def quick_java() -> dict[str, str]:
    """The environment of a program whose Spark has all its usual settings; only its Java starts quickly.

    It uses the archive if it is there, and makes none.
    """
    return _environment(_shared())


def _shared() -> str:
    return f"-XX:SharedArchiveFile={_ARCHIVE}" if _ARCHIVE.exists() else ""


def _make_archive() -> None:
    """Make the archive. If another process is making it, do without.

    A start costs 23 seconds of a processor with an archive and 30 without one. To make an archive costs 48.
    """
    with _ARCHIVE.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not _ARCHIVE.exists():
            begun = _ARCHIVE.with_suffix(".new")
            _run_once(f"{_SPARK} -XX:ArchiveClassesAtExit={begun}")
            begun.rename(_ARCHIVE)


def _run_once(options: str) -> None:
    """Run a child that ends in good order."""
    subprocess.run(
        [sys.executable, "-m", "tests.support.drivers.warm"],
        cwd=_ROOT, env=os.environ | _environment(options) | {"PYTHONPATH": str(_ROOT)},
        capture_output=True, check=True, timeout=300,
    )  # fmt: skip


def _environment(option: str) -> dict[str, str]:
    return {"SPARK_HOME": str(spark_home()), "JDK_JAVA_OPTIONS": f"{_OPTIONS} {option}"}
