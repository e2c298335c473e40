"""Sends outcomes of received messages without Spark: makes the frames that Spark would hand to a task."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.chunk import Chunk
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.compose.outcome_builder import OutcomeBuilder
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.stage_writer import seal, stage
from sqlqueue_spark.send.sent import Sent
from tests.support import messages
from tests.support.engines import Engine, QueueTable
from tests.support.messages import body, row_id

_TEXTS = pa.map_(pa.string(), pa.string())
_OUTGOING = pa.struct(
    [
        ("Destination", pa.string()),
        ("Headers", _TEXTS),
        ("Body", pa.binary()),
        ("MessageId", pa.string()),
        ("ReplyToAddress", pa.string()),
        ("DelayDeliveryFor", pa.duration("us")),
        ("EventType", pa.string()),
    ]
)
_FAILURE = pa.struct(
    [
        ("ExceptionType", pa.string()),
        ("Message", pa.string()),
        ("StackTrace", pa.string()),
        ("Data", _TEXTS),
        ("TimeOfFailure", pa.timestamp("us", tz="Asia/Tokyo")),  # that of a session that is not in UTC
        ("RetryAfter", pa.duration("us")),
        ("ErrorQueue", pa.string()),
    ]
)
_SCHEMA = pa.schema(
    [
        ("Queue", pa.string()),
        ("RowVersion", pa.int64()),
        ("Id", pa.string()),
        ("Headers", pa.string()),
        ("Body", pa.binary()),
        ("Outgoing", pa.list_(_OUTGOING)),
        ("Failure", _FAILURE),
        ("ProcessingStarted", pa.timestamp("us", tz="Asia/Tokyo")),
        ("ProcessingEnded", pa.timestamp("us", tz="Asia/Tokyo")),
    ]
)
Json = dict[str, Any]
#: The columns of :func:`frame`.
COLUMNS = FrameColumns(
    names={name: name for name in _SCHEMA.names},
    outgoing={each.name: each.name for each in _OUTGOING},
    failure={each.name: each.name for each in _FAILURE},
)
#: Those of a frame that sends nothing later, so that no table need be there for that.
AT_ONCE = replace(COLUMNS, outgoing={})


def options(engine: Engine, **more: str | None) -> SinkOptions:
    """The options of a sink of the endpoint Sales, whose error queue is error;
    an option that is None is not given.
    """
    given = {"url": engine.url, "endpoint": "Sales", "errorQueue": "error", **more}
    return SinkOptions.parse({name: value for name, value in given.items() if value is not None})


def outgoing(to: str | None, number: int, **more: Any) -> Json:
    """A message out: the one of this number, without an id of its own."""
    return {"Destination": to, "Body": body(number), **more}


def failure(kind: str = "orders.OutOfStock", message: str = "nothing left", **more: Any) -> Json:
    return {"ExceptionType": kind, "Message": message, **more}


def outcome(number: int, *sends: Json, fails: Json | None = None, **more: Any) -> Json:
    """The outcome of the received message of this number, which came to the queue orders as the
    row of the same number.
    """
    return {
        "Queue": "orders",
        "RowVersion": number,
        "Id": str(row_id(number)),
        "Headers": messages.headers(number),
        "Body": body(number),
        "Outgoing": list(sends),
        "Failure": fails,
        **more,
    }


def frame(outcomes: Iterable[Json]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(outcomes), _SCHEMA)


def _builder(given: SinkOptions, destinations: Destinations) -> OutcomeBuilder:
    return OutcomeBuilder(columns=COLUMNS, places=destinations.places, answers=destinations.places)


def composed_outcomes(
    given: SinkOptions, destinations: Destinations, *frames: pa.RecordBatch
) -> Iterator[Chunk]:
    """The chunks that a task makes of these outcomes."""
    return _builder(given, destinations).compose(frames)


def settle(given: SinkOptions, *outcomes: Json) -> tuple[int, int, int]:
    """Send outcomes as one task does.

    :returns: how many messages went out, how many received ones had their outcome before,
        and how many have failed.
    """
    return settle_all(given, frame(outcomes))


def settle_all(given: SinkOptions, *frames: pa.RecordBatch) -> tuple[int, int, int]:
    """As :func:`settle`, for record batches."""
    done = settled_all(given, *frames)
    return done.sent, done.repeated, done.failed


def settled_all(given: SinkOptions, *frames: pa.RecordBatch) -> Sent:
    """As :func:`settle_all`; returns all that became of the messages."""
    destinations = Destinations(given)
    with Sender(destinations) as sender:
        return sender.send(composed_outcomes(given, destinations, *frames))


def stage_all(given: SinkOptions, *frames: pa.RecordBatch) -> tuple[int, int]:
    """Stage outcomes as one task of an atomic batch does, and seal;
    returns how many rows it staged and how many have failed.
    """
    destinations = Destinations(given)
    run = prepare(destinations, AT_ONCE, ())
    staged = stage(destinations, composed_outcomes(given, destinations, *frames))
    seal(given, [staged], run)
    return staged.rows, staged.sent.failed


def sent_to(queue: QueueTable) -> list[int]:
    """The numbers of the messages in a queue, in the order of its rows, by their bodies."""
    return [json.loads(row.body or b"{}")["order"] for row in queue.rows()]


def failed_in(queue: QueueTable) -> list[Json]:
    """The headers of the rows of an error queue."""
    return [json.loads(row.headers) for row in queue.rows()]
