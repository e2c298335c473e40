"""A small local Spark with Delta, quick to start and quiet."""

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

#: The jar of Delta that fits each version of Spark; Delta's wheel has the same version.
_DELTA = {
    "4.0": "io.delta:delta-spark_2.13:4.0.0",
    "4.1": "io.delta:delta-spark_4.1_2.13:4.1.0",
    "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
}
DELTA = _DELTA[".".join(pyspark.__version__.split(".")[:2])]
_ROOT = Path(__file__).parents[2]
_JARS = Path(sys.prefix) / f"spark-jars-{pyspark.__version__}"


def start_spark(
    folder: Path, *, master: str = "local[2]", events: Path | None = None, ui: bool = False
) -> SparkSession:
    """:param events: where Spark is to write its event log, as text."""
    settings = {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **delta_jars(),
        "spark.executorEnv.PGDATABASE": "postgres",  # a driver's environment is not its executors'
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
    }
    if events is not None:
        events.mkdir(exist_ok=True)
        settings |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
    builder = SparkSession.builder.master(master).appName("sqlqueue_spark tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _one_downloads_at_a_time():
        session = builder.getOrCreate()
        if "spark.jars" not in settings:
            _JARS.write_text(_without_sparks_own(session.conf.get("spark.jars") or ""))
    session.sparkContext.setLogLevel("ERROR")
    return session


def check_java() -> None:
    """:raises RuntimeError: the Java of this process's Spark has ended; it says how,
    where Spark could only say that Java does not answer.
    """
    java: subprocess.Popen[bytes] = SparkContext._gateway.proc  # type: ignore[union-attr]
    if java.poll() is not None:
        # Java writes its last words where it was started. https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html
        last = "".join(log.read_text()[:5000] for log in Path.cwd().glob(f"hs_err_pid{java.pid}.log"))
        raise RuntimeError(
            f"Spark's Java (process {java.pid}) has ended with code {java.returncode}.\n{last}"
        )


def fetch_delta(environment: dict[str, str]) -> None:
    """See that Delta's jars are there, before programs start that know nothing of the lock and would
    download them all at once.

    :param environment: of the process that starts a Spark for it.
    """
    if _JARS.exists():
        return
    with _JARS.with_suffix(".fetching").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _JARS.exists():
            with tempfile.TemporaryDirectory() as folder:
                program = (
                    "import pathlib, sys; from tests.support.sparks import start_spark; "
                    "start_spark(pathlib.Path(sys.argv[1])).stop()"
                )
                command = [sys.executable, "-c", program, folder]
                subprocess.run(command, env=os.environ | environment, cwd=_ROOT, check=True, timeout=300)


def delta_jars() -> dict[str, str]:
    """The setting that brings Delta's jars.

    Once they are there, it names them, because to ask Ivy takes seconds.
    """
    kept = _JARS.read_text() if _JARS.exists() else ""
    files = [Path(each.removeprefix("file:")) for each in kept.split(",")]
    return {"spark.jars": kept} if kept and all(map(Path.is_file, files)) else {"spark.jars.packages": DELTA}


def _without_sparks_own(jars: str) -> str:
    """The jars that Spark itself has not got in a version as new:
    it copies each jar that it is given at every start.

    Spark takes a class from its own jars first.
    """
    of_spark = dict(_artifact(each.stem) for each in (Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    kept = []
    for url in jars.split(","):
        artifact, version = _artifact(Path(url).stem.partition("_")[2])  # Ivy puts the group in front
        if artifact not in of_spark or version > of_spark[artifact]:
            kept.append(url)
    return ",".join(kept)


def _artifact(name: str) -> tuple[str, tuple[int, ...]]:
    artifact, version = re.fullmatch(r"(.+?)(?:-(\d.*))?", name).groups(default="")  # type: ignore[union-attr]
    return artifact, tuple(map(int, re.findall(r"\d+", version)))


@contextlib.contextmanager
def _one_downloads_at_a_time() -> Iterator[None]:
    """Let one process after another download, because Ivy's cache takes only one writer.

    Once the jars are there, all may start at once.
    """
    if _JARS.exists():
        yield
        return
    with _JARS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
