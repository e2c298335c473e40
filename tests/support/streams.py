"""A queue read as a stream by the tests' own Spark session."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.support.engines import Engine, QueueTable
from tests.support.waiting import eventually

_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
Handle = Callable[[DataFrame, int], None]


def stream(spark: SparkSession, engine: Engine, queue: QueueTable, **options: Any) -> DataFrame:
    """The queue as a streaming frame. All waits are short, so that a failing test fails soon."""
    given = {
        "url": engine.url,
        "queue": queue.address,
        "pollInterval": "100ms",
        "lockTimeout": "10s",
        **options,
    }
    return spark.readStream.format("sqlqueue").options(**given).load()


def to_delta(frame: DataFrame, folder: Path) -> DataStreamWriter:
    """A writer into the Delta table ``folder/delta``, with the checkpoint in ``folder/checkpoint``."""
    writer = frame.writeStream.format("delta").option("path", str(folder / "delta"))
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def to_each(frame: DataFrame, folder: Path, handle: Handle) -> DataStreamWriter:
    """A writer that hands every batch to a function; the checkpoint is ``folder/checkpoint``."""
    return frame.writeStream.foreachBatch(handle).option("checkpointLocation", str(folder / "checkpoint"))


def once_into_delta(folder: Path) -> Handle:
    """What a user writes to be safe against a repeated batch: ``folder/delta`` skips a number that it has."""

    def write(batch: DataFrame, number: int) -> None:
        once = {"txnAppId": "drain", "txnVersion": str(number)}
        batch.write.format("delta").mode("append").options(**once).save(str(folder / "delta"))

    return write


@contextmanager
def interpreted() -> Iterator[None]:
    """Within the block Spark interprets the plans of queries that are started.

    To compile a plan takes longer than a test's few rows.
    """
    settings = SparkSession.active().conf
    for name, value in _INTERPRETED.items():
        settings.set(name, value)
    try:
        yield  # a query keeps the settings of when it was started
    finally:
        for name in _INTERPRETED:
            settings.unset(name)


def start(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query whose plans Spark interprets."""
    with interpreted():
        return writer.start()


def drain(writer: DataStreamWriter, *, within: timedelta = timedelta(seconds=60)) -> StreamingQuery:
    """Run a query until it has done everything that is there now."""
    query = start(writer.trigger(availableNow=True))
    try:
        assert query.awaitTermination(int(within.total_seconds())), (
            f"not drained within {within}: {query.status}"
        )
    finally:
        end(query)
    return query


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """Run a query until the end of the block. If the query fails, the test fails."""
    query = start(writer)
    try:
        yield query
    finally:
        error = query.exception()
        end(query)
        assert error is None, error


def end(query: StreamingQuery) -> None:
    query.stop()
    eventually(lambda: not query.isActive)


def read_delta(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format("delta").load(str(folder / "delta"))


def ids_in_delta(spark: SparkSession, folder: Path) -> list[str]:
    """The row ids in ``folder/delta``, sorted; an id that is there twice comes twice."""
    return sorted(row.Id for row in read_delta(spark, folder).select("Id").collect())


def free(queue: QueueTable) -> int:
    """How many rows another receiver could take now."""
    with queue.session() as other:
        taken = 0
        while other.take() is not None:
            taken += 1
        other.rollback()
    return taken


def logged(folder: Path, log: str) -> list[int]:
    """The batches in the ``offsets`` or ``commits`` log of ``folder/checkpoint``."""
    return sorted(int(file.name) for file in (folder / "checkpoint" / log).glob("[0-9]*"))


@contextmanager
def java_says(spark: SparkSession) -> Iterator[list[str]]:
    """What Java writes to its stderr within the block, as of an error that ends a thread;
    there when it ends.
    """
    jvm: Any = spark._jvm
    before, kept, said = jvm.System.err, jvm.java.io.ByteArrayOutputStream(), list[str]()
    jvm.System.setErr(jvm.java.io.PrintStream(kept, True))
    try:
        yield said
    finally:
        jvm.System.setErr(before)
        said.append(kept.toString())
