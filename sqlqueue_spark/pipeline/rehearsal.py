"""A job over a few rows that are in no database, in which Java notes the classes that a real one loads.

``python -m sqlqueue_spark.pipeline.rehearsal FILE`` lets Java write the archive of these classes into the file when it ends.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.pipeline.class_archive import archive_file
from sqlqueue_spark.pipeline.delta.delta_stream import DeltaOptions, write_delta
from sqlqueue_spark.pipeline.running.queue_stream import with_message_columns
from sqlqueue_spark.pipeline.session import (
    JAVA_OPTIONS,
    check_machine,
    conf_folder,
    missing_settings,
    session,
    spark_home,
    starts_soon,
)
from sqlqueue_spark.spark.readers import SCHEMA

_MESSAGE = {
    "Id": "1",
    "Headers": '{"NServiceBus.MessageId":"1","NServiceBus.TimeSent":"2026-01-01 00:00:00:000000 Z"}',
    "Body": b"{}",
}
#: From the second batch on Delta asks its log whether it has the batch.
_BATCHES = 2


def make_archive() -> Path:
    """Make the archive that jobs of this user start with from now on. It takes half a minute, and 200 MB.

    :raises SqlQueueError: Spark, Java or Delta Lake is missing; jobs would not use the archive; Java has made none.
    """
    check_machine()
    if not starts_soon(missing_settings(delta=True)):
        raise ConfigurationError(
            "The jobs would not use an archive, for Spark runs on a cluster or its Java has options of yours; to use one, add "
            "-XX:ArchiveClassesAtExit=FILE to them for a job that ends, and -XX:SharedArchiveFile=FILE from then on."
        )
    folder = conf_folder()
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigurationError(
            f"Java makes no archive where a folder of its class path has files, as {folder} has, with which Spark's begins; make it, and "
            "run the jobs, without that folder (SPARK_CONF_DIR)."
        )
    file = archive_file(spark_home())
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Java writes when it ends, after the Python that started it. If we were interrupted, it no longer finds the folder.
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="classes-") as new:
        begun = Path(new, file.name)
        run = subprocess.run(
            [sys.executable, "-m", __name__, str(begun)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )  # fmt: skip
        if run.returncode or not begun.is_file():
            said = [line for line in run.stdout.splitlines() if line.strip()] or ["nothing"]
            raise ConfigurationError(f"Java has made no archive of classes; what was said last: {said[-1]}")
        begun.replace(file)
    return file


def rehearse(spark: SparkSession) -> None:
    """Drain two messages of no database into a Delta table of no use, and hand them to a sink's kind of workers."""
    spark.dataSource.register(_Messages)
    messages = spark.readStream.format(_Messages.name()).load()
    with tempfile.TemporaryDirectory(prefix="sqlqueue-") as folder:
        delta = DeltaOptions(path=f"{folder}/delta", checkpoint=f"{folder}/drained")
        drained = write_delta(with_message_columns(messages), delta)
        sent = messages.writeStream.foreachBatch(_send).option("checkpointLocation", f"{folder}/sent").start()
        for query in (drained, sent):
            query.processAllAvailable()
            query.stop()


def _send(messages: DataFrame, _: int) -> None:
    messages.mapInArrow(_passed_on, messages.schema).collect()


def _passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


class _Messages(DataSource):
    """A message a batch."""

    @classmethod
    def name(cls) -> str:
        return "rehearsal"

    def schema(self) -> Any:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Reader()


class _Reader(DataSourceStreamReader):
    def __init__(self) -> None:
        self._batch = 0

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # Spark before 4.2 gives it nothing
        self._batch = min(self._batch + 1, _BATCHES)
        return {"batch": self._batch}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(batch) for batch in range(start["batch"], end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield tuple({**dict.fromkeys(SCHEMA.names), **_MESSAGE, "RowVersion": partition.value}.values())


def _main(file: str) -> None:
    options = missing_settings(delta=True)[JAVA_OPTIONS]
    spark = session("rehearsal", settings={JAVA_OPTIONS: f"{options} -XX:ArchiveClassesAtExit={file}"})
    rehearse(spark)
    spark.stop()


if __name__ == "__main__":
    _main(sys.argv[1])
