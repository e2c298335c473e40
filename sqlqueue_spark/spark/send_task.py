"""What a task of a sink or a writer does with its rows, and what is logged of what all tasks did."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Self

import pyarrow as pa

from sqlqueue_spark.engines.connect import Target
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send import (
    Destinations,
    FrameColumns,
    MessageBuilder,
    OutcomeBuilder,
    ParkingSender,
    Sender,
    Sent,
    stage,
)
from sqlqueue_spark.spark.processes import begin_task

log = logger(__name__)

_COUNTS = [*(each.name for each in fields(Sent)), "untyped"]
_SENT = pa.schema([(name, pa.int64()) for name in _COUNTS])
_STAGED = pa.schema(
    [("task", pa.string()), ("destinations", pa.list_(pa.string())), ("rows", pa.int64()), *_SENT]
)
#: What :meth:`SendTask.send` and :meth:`SendTask.stage` yield, as Spark's ``mapInArrow`` wants it said.
SENT_COLUMNS = ", ".join(f"{name} long" for name in _COUNTS)
STAGED_COLUMNS = f"task string, destinations array<string>, rows long, {SENT_COLUMNS}"


@dataclass(frozen=True)
class SendTask:
    """What a worker does with its part of a batch."""

    builder: MessageBuilder | OutcomeBuilder
    destinations: Destinations
    #: The databases that are down, each with the name of the option that leads there; None where nothing
    #: waits for them.
    down: Mapping[Target, str] | None = None

    @classmethod
    def of(
        cls,
        columns: FrameColumns,
        options: SinkOptions,
        destinations: Destinations,
        down: Mapping[Target, str] | None = None,
    ) -> Self:
        builder = OutcomeBuilder if columns.outcomes else MessageBuilder
        return cls(builder(columns=columns, options=options, destinations=destinations), destinations, down)

    def send(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send what a part says; yields one row that counts it."""
        sent = self.sent(batches)
        yield sent_batch(sent, self.builder.untyped.number)

    def sent(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        begin_task()
        with self._sender() as sender:
            return sender.send(self.builder.compose(batches))

    def _sender(self) -> Sender:
        if self.down is None:
            return Sender(self.builder.options, self.destinations)
        return ParkingSender(self.builder.options, self.destinations, self.down)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        staged = stage(self.builder.options, self.destinations, self.builder.compose(batches))
        told = {"task": staged.task, "destinations": staged.destinations, "rows": staged.rows}
        counts = {**asdict(staged.sent), "untyped": self.builder.untyped.number}
        yield pa.RecordBatch.from_pylist([{**told, **counts}], _STAGED)


def sent_batch(sent: Sent, untyped: int) -> pa.RecordBatch:
    """What a task yields: what became of its messages, and how many have no type."""
    return pa.RecordBatch.from_pylist([{**asdict(sent), "untyped": untyped}], _SENT)


def counted(rows: Iterable[object]) -> Sent:
    """What became of the messages of all tasks, by the rows that these have yielded."""
    return sum(
        (Sent(**{each.name: getattr(row, each.name) for each in fields(Sent)}) for row in rows), Sent()
    )


def log_sent(which: str, sent: Sent, done: str = "sent") -> None:
    """Log one line a batch, as a warning where messages were repeated, or have failed.

    After a failure repeats are right. Else they are a sign that ids are not as unique as they should be.
    """
    level = logging.WARNING if sent.repeated or sent.failed else logging.INFO
    log.log(level, "%s %s%s=%d repeated=%d%s", done, which, done, sent.sent, sent.repeated, sent.others)


def log_untyped(count: int) -> None:
    log.warning(
        "without_type messages=%d: a .NET endpoint cannot handle a message without a type, and moves it to "
        "its error queue; set the option messageType, or give the header %s",
        count,
        ENCLOSED_MESSAGE_TYPES,
    )
