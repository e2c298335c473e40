"""Makes Java start quickly rather than work fast, for children that live for some seconds.

Most of a start goes into loading the same 20,000 classes. Java can keep them in an archive. We make it once,
in the folder of the Spark to which it belongs. Java ignores an archive that no longer fits.
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.spark_home import spark_home
from tests.support.sparks import fetch_delta

_ROOT = Path(__file__).parents[2]
_ARCHIVE = spark_home() / "classes.jsa"
#: With one compiler Java looks for compiled code to throw away again and again, so it may throw none away.
#: Then the 48 MB that it reserves for one compiler are used up after five minutes of tests: nothing more is
#: compiled, and Java can end (https://bugs.openjdk.org/browse/JDK-8295724). 240 MB is what it reserves for
#: two.
_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:-UseCodeCacheFlushing -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"
)
_SPARK = (
    "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN "
    "-Dspark.sql.adaptive.enabled=false -Dspark.databricks.delta.stats.collect=false"
)


def quick(*more: str, temporary: Path | None = None) -> dict[str, str]:
    """The environment of a child whose Java starts quickly, with settings of Spark for few rows.

    :param more: further options of Java.
    :param temporary: the folder of a test that kills the child:
        Java and Spark would leave their temporary files behind.
    """
    archive(wait=False)
    kept = () if temporary is None else (f"-Djava.io.tmpdir={temporary}",)
    return _environment(" ".join((_SPARK, _shared(), *kept, *more)))


def quick_java() -> dict[str, str]:
    """The environment of a program whose Spark has all its usual settings; only its Java starts quickly.

    It uses the archive if it is there, and makes none.
    """
    return _environment(_shared())


def _shared() -> str:
    return f"-XX:SharedArchiveFile={_ARCHIVE}" if _ARCHIVE.exists() else ""


def archive(*, wait: bool = True) -> Path:
    """The archive; this makes it if it is not there. If another process is making it, wait for that,
    or do without.

    A start costs 23 seconds of a processor with an archive and 30 without one. To make an archive costs 48.
    """
    if _ARCHIVE.exists():
        return _ARCHIVE
    fetch_delta(quick_java())
    with _ARCHIVE.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return _ARCHIVE
        if not _ARCHIVE.exists():
            _make()
    return _ARCHIVE


def _make() -> None:
    theirs = {"JDK_JAVA_OPTIONS", "SPARK_CONF_DIR"}
    untuned = {name: value for name, value in os.environ.items() if name not in theirs}
    with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
        begun = Path(folder, _ARCHIVE.name)
        # Of the two Javas of a start only Spark's has SPARK_SUBMIT_OPTS.
        ours = {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={begun}", "PYSPARK_PYTHON": sys.executable}
        places = {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(_ROOT)}
        # Java writes when it ends, after the Python that started it: stdout is open until then.
        subprocess.run(
            [sys.executable, "-m", "tests.support.rehearsal"],
            env=untuned | ours | places, stdout=subprocess.PIPE, check=True, timeout=300,
        )  # fmt: skip
        begun.rename(_ARCHIVE)


def _environment(option: str) -> dict[str, str]:
    return {"SPARK_HOME": str(spark_home()), "JDK_JAVA_OPTIONS": f"{_OPTIONS} {option}"}
