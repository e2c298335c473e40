"""Sends messages without Spark: makes the record batches that Spark would hand to a task,
and looks what arrived.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa

from sqlqueue_spark.engines.open_connection import Connection, Target
from sqlqueue_spark.messages.outgoing_schema import OUTGOING
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.chunk import Chunk
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.compose.outcome_builder import builder_of
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from tests.support import driver
from tests.support.engines import Engine, QueueTable
from tests.support.messages import body, message_id

#: Both kinds of outbox.
OUTBOXES = ("optimistic", "pessimistic")
_MOMENT, _SPAN = pa.timestamp("us", tz="UTC"), pa.duration("us")
_TYPES = {
    "Body": pa.binary(),
    "Expires": _MOMENT,
    "TimeToBeReceived": _SPAN,
    "DeliverAt": _MOMENT,
    "DelayDeliveryFor": _SPAN,
}


class Outgoing(NamedTuple):
    """One row of :data:`OUTGOING`."""

    id: bytes
    headers: str
    body: bytes | None
    ttl_ms: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expires: datetime | None = None
    delay_ms: int | None = None
    due: datetime | None = None


def outgoing_rows(messages: Iterable[Outgoing]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([each._asdict() for each in messages], OUTGOING)


def batch(numbers: Iterable[int], **columns: Any) -> pa.RecordBatch:
    """The messages of these numbers.

    :param columns: further columns; each is a list, or one value for all messages.
    """
    numbers = list(numbers)
    values: dict[str, list[Any]] = {
        "Body": [body(number) for number in numbers],
        "MessageId": [message_id(number) for number in numbers],
    }
    for name, given in columns.items():
        values[name] = given if isinstance(given, list) else [given] * len(numbers)
    schema = pa.schema([(name, _TYPES.get(name, pa.string())) for name in values])
    return pa.RecordBatch.from_pydict(values, schema)


def options(engine: Engine, **more: str) -> SinkOptions:
    """The options of a sink of the endpoint Sales, which sends to the queue orders."""
    return SinkOptions.parse({"url": engine.url, "endpoint": "Sales", "queue": "orders", **more})


def columns_of(*names: str) -> FrameColumns:
    """The columns of a frame that are spelled as we do."""
    return FrameColumns(names={name: name for name in names})


#: Those of a frame of plain messages.
PLAIN = columns_of("Headers", "Body")


def composed(
    given: SinkOptions, *batches: pa.RecordBatch, destinations: Destinations | None = None
) -> list[Chunk]:
    """The chunks that a task makes of these record batches; each of them may have other columns."""
    return [
        chunk
        for each in batches
        for chunk in builder_of(
            columns_of(*each.schema.names),
            (destinations or Destinations(given)).places,
        ).compose([each])
    ]


def send(given: SinkOptions, *batches: pa.RecordBatch) -> tuple[int, int]:
    """Send as one task does; returns how many messages went out, and how many had been sent before."""
    done = sent_all(given, *batches)
    return done.sent, done.repeated


def sent_all(given: SinkOptions, *batches: pa.RecordBatch) -> Sent:
    """As :func:`send`; returns all that became of the messages."""
    destinations = Destinations(given)
    with Sender(destinations) as sender:
        return sender.send(composed(given, *batches, destinations=destinations))


def ids_in(queue: QueueTable) -> list[str]:
    """The message ids in a queue, in the order of its rows; an id that is there twice comes twice."""
    return [json.loads(row.headers)["NServiceBus.MessageId"] for row in queue.rows()]


@dataclass
class Watched:
    """The connections that were opened, each with its target."""

    opened: list[tuple[Target, Connection]]

    @property
    def last(self) -> Connection:
        return self.opened[-1][1]


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """Within the block :func:`tests.support.driver.at_step` works,
    and ``Watched`` gets every connection that is opened.
    """
    seen = Watched([])
    with driver.watched_connections(lambda target, connection: seen.opened.append((target, connection))):
        yield seen


@contextlib.contextmanager
def steps() -> Iterator[None]:
    """Within the block :func:`tests.support.driver.at_step` works."""
    with mock.patch.dict(os.environ, SQLQUEUE_AT_STEP=f"{driver.__name__}:{driver.reached.__name__}"):
        yield
