"""The sink of a store-and-forward job: translates between ``foreachBatch`` and senders of two databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from sqlqueue_spark.engines.connect import Target
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send import (
    Destinations,
    FrameColumns,
    MessageBuilder,
    OutcomeBuilder,
    RemoteDatabases,
    Sender,
    StoredBuilder,
    StoredSender,
    prepare,
)
from sqlqueue_spark.send.outcomes import TIMES
from sqlqueue_spark.send.stored_builder import STORED_COLUMNS
from sqlqueue_spark.spark.processes import begin_task, log_to_stderr
from sqlqueue_spark.spark.send_task import sent_batch
from sqlqueue_spark.spark.sink import SqlQueueSink
from sqlqueue_spark.tables.outbox_cleanup import OutboxCleaner


class StoreAndForwardSink(SqlQueueSink):
    """Sends a queue's messages to the databases that their headers name, all others as outcomes to its own.

    A frame has the columns of the source, and ``Queue``; and ``Outgoing`` or ``Failure`` for what stays.
    """

    def __init__(self, home: SinkOptions, other: SinkOptions, databases: RemoteDatabases) -> None:
        """:param home: the options of the queue's own database, and ``other`` those of the other one."""
        super().__setstate__(home)
        self._other = other
        self._other_destinations = Destinations(other)
        self.databases: RemoteDatabases = databases
        self._other_cleaner = OutboxCleaner(other)
        self._prepared = False

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        log_to_stderr()
        home, destinations = self._options, self._destinations
        columns = FrameColumns.of(df.dtypes, home)
        own = [] if home.queue is None else [home.queue]
        again = self._prepared
        self._patience.retried(
            lambda: prepare(home, destinations, own, again=again, delays=columns.delays), lambda _: again
        )
        self._prepared = True
        task = StoredTask(
            columns=columns,
            home=home,
            destinations=destinations,
            other=self._other,
            other_destinations=self._other_destinations,
            down=self.databases.down(),
        )
        self._send(df, task.send, batch_id)
        self._cleaner.clean_when_due(destinations.having_outboxes())
        self._other_cleaner.clean_when_due(
            [each for each in self._other_destinations.everywhere() if each not in task.down]
        )


@dataclass(frozen=True, kw_only=True)
class StoredTask:
    """What a worker does with its part of a batch."""

    columns: FrameColumns
    home: SinkOptions
    destinations: Destinations
    other: SinkOptions
    other_destinations: Destinations
    #: The databases that are down, each with the name of the option that leads there.
    down: Mapping[Target, str]

    def send(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        builder = self.builder()
        with (
            Sender(self.home, self.destinations) as home,
            StoredSender(self.other, self.other_destinations, home, self.down) as sender,
        ):
            sent = sender.send_stored(builder.compose(batches))
        yield sent_batch(sent, builder.forward.untyped.number + builder.local.untyped.number)

    def builder(self) -> StoredBuilder:
        received = {name: own for name, own in self.columns.names.items() if name not in _NOT_SENT}
        forward = MessageBuilder(
            columns=FrameColumns(names={**received, **STORED_COLUMNS}),
            options=self.other,
            destinations=self.other_destinations,
        )
        local = OutcomeBuilder(columns=self.columns, options=self.home, destinations=self.destinations)
        return StoredBuilder(forward=forward, local=local)


#: Columns of a frame that are for the messages that stay, or that no message has.
_NOT_SENT = ("Outgoing", "Failure", "Recoverable", "Destination", *TIMES.names)
