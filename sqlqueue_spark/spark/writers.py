"""The writers of ``format("sqlqueue")``, for batch jobs and streams: between Spark and the sender."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.spark.error_boundary import sentence_first
from sqlqueue_spark.spark.send_task import SendTask, log_untyped
from sqlqueue_spark.tables.outbox_cleanup import OutboxCleaner

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0, which gives Arrow to what is a batch's writer of Arrow by its class
    DataSourceStreamArrowWriter = DataSourceArrowWriter  # type: ignore[assignment, misc]

#: How long a writer waits at its end for a cleanup of the outbox; the next one does the rest.
_CLEANUP_SECONDS = 10.0


@dataclass
class _Committed(WriterCommitMessage):
    sent: Sent


@functools.lru_cache(maxsize=100)
def _of_query(options: SinkOptions) -> tuple[Destinations, OutboxCleaner]:
    """What the writers of a query with these options share: they look for their destinations once.

    Spark keeps the processes that make writers and commit.
    """
    return Destinations(options), OutboxCleaner(options)


@sentence_first
class _Writer:
    _task: SendTask

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Committed(self._task.sent(iterator))

    def _check(self, destinations: Destinations, schema: StructType) -> None:
        """Check columns, destination and outbox, before anything is sent."""
        options = destinations.options
        columns = FrameColumns.of([(each.name, each.dataType.simpleString()) for each in schema], options)
        named = () if options.queue is None else (options.queue,)
        prepare(destinations, columns, named)
        self._task = SendTask(columns, destinations)

    def _done(
        self, messages: Sequence[WriterCommitMessage | None], which: str, cleaner: OutboxCleaner
    ) -> None:
        """Log what the tasks did, and clean the outbox if it is time.

        :param which: the batch, in front of the figures in the line.
        """
        sent = sum((each.sent for each in messages if isinstance(each, _Committed)), Sent())
        sent.log(which)
        if sent.untyped:
            log_untyped(sent.untyped)
        cleaner.clean_when_due(self._task.destinations.having_outboxes())


@sentence_first
class SqlQueueWriter(_Writer, DataSourceArrowWriter):
    """``df.write.format("sqlqueue").mode("append")``: sends as the sink does, in a batch job."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            there = options.queue and Destinations(options).places.destination(options.queue).table
            raise ConfigurationError(
                "A queue cannot be overwritten: receivers own its rows; write with mode append, and empty it "
                f"with: sqlqueue purge {for_shell(str(there)) if there else 'QUEUE'}."
            )
        if options.transaction_mode == ATOMIC:
            raise ConfigurationError(
                "The option transactionMode is sendsAtomicWithReceive, which only a stream can have; leave "
                "it out of a batch job, where an outbox keeps a repeated write from sending twice."
            )
        self._check(Destinations(options), schema)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        cleaner = OutboxCleaner(self._task.destinations.options)
        self._done(messages, "", cleaner)
        cleaner.wait(_CLEANUP_SECONDS)  # the cleanup's process ends with the job

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: an outbox knows what was sent, and when the job writes again, it sends the rest."""


@sentence_first
class SqlQueueStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """``df.writeStream.format("sqlqueue")``: sends each micro-batch as the sink does, by the same outbox.

    Spark makes a writer for each batch, and tells the batch's number when it is done: too late for a stage.
    """

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "A queue cannot be overwritten with each batch: receivers own its rows; write with "
                "outputMode append."
            )
        if options.transaction_mode == ATOMIC:
            raise ConfigurationError(
                "The option transactionMode is sendsAtomicWithReceive, for which the sink must know the "
                "batch before its tasks begin; write with foreachBatch(SqlQueueSink(…)), or take receiveOnly "
                "with an outbox."
            )
        if options.stream is not None:
            raise ConfigurationError(
                f"The option stream is {options.stream!r}, by which SqlQueueSink finds what an "
                "atomic pipeline has staged, and this writer does not; name the outbox by the option "
                "endpoint, or write with foreachBatch(SqlQueueSink(…))."
            )
        self._check(_of_query(options)[0], schema)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _, cleaner = _of_query(self._task.destinations.options)
        self._done(messages, f"batch={batchId} ", cleaner)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Look for the destinations anew when the batch is tried again; the outbox knows what was sent."""
        self._task.destinations.forget()
