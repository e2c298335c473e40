"""A Spark that drains two messages of no database into a Delta table; Java notes the classes that it loads.

``python -m tests.support.rehearsal``, with an option of Java that writes them into an archive.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from sqlqueue_spark.pipeline import DeltaOptions, with_message_columns, write_delta
from sqlqueue_spark.spark.readers import SCHEMA
from tests.support.sparks import start_spark

_MESSAGE = {
    "Id": "1",
    "Headers": '{"NServiceBus.MessageId":"1","NServiceBus.TimeSent":"2026-01-01 00:00:00:000000 Z"}',
    "Body": b"{}",
}
#: From the second batch on Delta asks its log whether it has the batch.
_BATCHES = 2


def rehearse(spark: SparkSession, folder: Path) -> None:
    """Drain the messages into Delta, and hand them to Python workers as a sink does."""
    spark.dataSource.register(_Messages)
    messages = spark.readStream.format(_Messages.name()).load()
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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as there:
        session = start_spark(Path(there))
        rehearse(session, Path(there))
        session.stop()
