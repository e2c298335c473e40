"""What every benchmark runs on: a PostgreSQL server from the wheel, a Spark session on two cores, a stream to its end."""

from __future__ import annotations

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
from queue_under_test import QUEUE

from sqlqueue_spark.embedded import EmbeddedServer

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

JDBC_DRIVER = "org.postgresql:postgresql:42.7.7"


def run_by() -> str:
    """The machine, in a line."""
    return f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, Spark {pyspark.__version__}"


def stream(spark: SparkSession, url: str, **options: str) -> DataFrame:
    """The queue as a stream."""
    return spark.readStream.format("sqlqueue").options(url=url, queue=QUEUE, **options).load()


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
def database() -> Iterator[str]:
    with checkpoint() as folder:
        Path(folder).chmod(0o755)
        # As PostgreSQL's manual recommends for a server: a quarter of the memory, and checkpoints by time, not by volume.
        settings = {"max_wal_size": "16GB", "shared_buffers": f"{psutil.virtual_memory().total // 4 >> 20}MB"}
        with EmbeddedServer(Path(folder) / "data", settings=settings) as server:
            yield server.url()


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars.packages", JDBC_DRIVER)
        .config("spark.driver.memory", "2g")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
