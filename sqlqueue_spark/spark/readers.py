"""The readers of ``format("sqlqueue")``: translate between Spark and the receiver; decide nothing."""

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import ConfigurationError, LockTimeout, SqlQueueError, TryAgain
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.receive import Receiver, ReceiverBeforeSpark42, SliceReader
from sqlqueue_spark.receive.offset import INITIAL, Offset, to_json
from sqlqueue_spark.receive.reading import slices
from sqlqueue_spark.receive.reading.first_reading import Reading
from sqlqueue_spark.receive.reading.peek import plan_peek, plan_rows
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.spark.error_boundary import sentence_first
from sqlqueue_spark.spark.processes import leave_ctrl_c_to_the_program
from sqlqueue_spark.tables.queues import Queue

log = logger(__name__)

SCHEMA = from_arrow_schema(slices.SCHEMA)
#: Of several queues.
JOINT_SCHEMA = from_arrow_schema(slices.JOINT_SCHEMA)


@sentence_first
class QueueStreamReader(DataSourceStreamReader):
    """What the readers of all streams do. ``read`` runs in the workers, the other methods in one process on
    the driver.
    """

    def __init__(self, options: SourceOptions) -> None:
        leave_ctrl_c_to_the_program()
        self._options = options
        self._source = Receiver(options, on_first_open=_look_round)
        self._plan = self._source.plan

    def initialOffset(self) -> dict[str, Any]:
        return dict(INITIAL)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(task) for task in self._plan(Offset.from_json(start), Offset.from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return SliceReader(Target.of(self._options), _reading()).rows(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        self._source.settle(Offset.if_ours(end))

    def stop(self) -> None:
        self._source.close()

    def __reduce__(self) -> tuple[Callable[[SourceOptions], Self], tuple[SourceOptions]]:
        return type(self), (self._options,)  # a reader opens nothing when made


@sentence_first
class StreamReaderBeforeSpark42(QueueStreamReader):
    """The reader for Spark before 4.2. That Spark says neither how far it is nor how much it wants, and asks
    for no lag.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._follower = ReceiverBeforeSpark42(self._source, options.most_rows)
        self._plan = self._follower.plan

    def initialOffset(self) -> dict[str, Any]:
        self._follower.initial()
        return super().initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # as it was before 4.2
        return to_json(self._follower.latest())


@sentence_first
class SqlQueuePeekReader(DataSourceReader):
    """A look at the rows that a stream would receive; nothing is locked or deleted.

    :param rows: look only at these; None for all.
    """

    def __init__(self, options: SourceOptions, rows: RowSet | None) -> None:
        self._options = options
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        options, rows = self._options, self._rows
        tasks = plan_peek(options) if rows is None else plan_rows(options, rows)
        return [InputPartition(task) for task in tasks or [()]]  # for no partition Spark makes one of its own

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return SliceReader(Target.of(self._options)).peek(partition.value)


def schema_of(options: SourceOptions) -> StructType:
    """The columns of the rows that are received, or peeked at."""
    return JOINT_SCHEMA if options.several else SCHEMA


def check_schema(schema: StructType, options: SourceOptions) -> None:
    """Refuse a user's schema that is not the queue's: Spark would pass it through unchecked."""
    its = schema_of(options)
    if schema != its:
        raise ConfigurationError(
            f"The schema {schema.simpleString()} is not the queue's; leave out .schema(…) and select or cast "
            f"columns of {its.simpleString()}."
        )


def _reading() -> Reading:
    """The task of Spark that reads, the same for each of its attempts."""
    if (context := TaskContext.get()) is None:
        return Reading()
    task = f"{context.stageId()}.{context.partitionId()}"
    speculative = context.getLocalProperty("spark.speculation") == "true"
    return Reading(task, context.getLocalProperty("spark.driver.host"), speculative)


def _look_round(queue: Queue) -> None:
    """Log, when a stream opens a queue for the first time, what its user should know: what ``sqlqueue
    inspect`` would find, and whether the queue has a second reader. It is advice: a stream runs without it,
    too.

    Each query has a reader of its own, also of one frame, and a join of a stream with itself has two. A
    reader runs in a process below that of Spark's driver.
    """
    from sqlqueue_spark.inspection.queue_findings import findings
    from sqlqueue_spark.tables.rights import RECEIVER

    try:
        with queue.connection.attempt(hurried=True):
            shared = not queue.first_reader(f"{socket.gethostname()}/{os.getppid()}")
            found = findings(queue.connection, queue.table, RECEIVER)
    except SqlQueueError as error:
        if isinstance(error, TryAgain) and not isinstance(error, LockTimeout):
            raise
        log.warning("not_inspected queue=%s: %s", queue.table.name, error)
        return
    if shared:
        log.warning("queue_shared queue=%s: a second reader of this Spark program takes from it (another "
                    "query, or one that uses its stream twice, as in a join with itself). Each message goes "
                    "to one of them alone, and a join loses what finds no partner; let one query read the "
                    "queue once, and write to both places, or join, in its foreachBatch, or drain the queue "
                    "into a Delta table that others read", queue.name)  # fmt: skip
    for finding in found:
        log.warning(
            "finding queue=%s: %s %s", queue.table.name, finding.message, " ".join(finding.remedy_sql.split())
        )
