"""The real ``each_message`` with a function of the machine: what a task of it makes of the rows of a batch.

The function is called in this process: a fork for each try would take longer than a scenario.
``recoverability`` works on Spark's columns, so what it adds to a failure is made here.
"""

import contextlib
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from sqlqueue_spark.handling import (
    Publish,
    ReceivedMessage,
    Send,
    child_handler,
    each_message,
    handler_calls,
)
from sqlqueue_spark.handling.child_process import Outcomes
from sqlqueue_spark.handling.handler_calls import Seen
from sqlqueue_spark.handling.outcome_columns import COLUMNS
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import RETRIES, STORED_FOR
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.receive.reading.slices import JOINT_SCHEMA
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from tests.machine.world import DESTINATIONS, EVENT_TYPE

#: So often a message is tried again later.
_MOST_RETRIES = 2
_LATER = timedelta(hours=1)
#: The columns from which it follows whether a message that fails is tried again.
_TOLD = ("Body", "Headers")
_FAILURE = COLUMNS.field("Failure")
#: The type of a failure to which ``recoverability`` has added when its message is tried again.
_RECOVERED = pa.struct([*_FAILURE.type, ("RetryAfter", pa.duration("us"))])
#: The columns of the frame that the sink is given.
_SCHEMA = pa.schema(
    [*JOINT_SCHEMA, *(each.with_type(_RECOVERED) if each == _FAILURE else each for each in COLUMNS)]
)


class Fails(Exception):
    """The function fails."""


@dataclass(frozen=True)
class Answers:
    """The function: a message goes to both destinations or fails, and not in the same way in each try."""

    tries: int
    publishes: bool

    def __call__(self, message: ReceivedMessage) -> list[Send | Publish]:
        if (int(message.body) + self.tries) % 3 == 0:
            raise Fails
        first, second = DESTINATIONS
        then = Publish(EVENT_TYPE, message.body) if self.publishes else Send(second, body=message.body)
        return [Send(first, body=message.body), then]

    def recovered(self, outcomes: pa.RecordBatch) -> pa.RecordBatch:
        """The outcomes as ``recoverability`` leaves them: some of what failed is tried again later."""
        waits = [
            _LATER if self._again(int(body), headers) else None
            for body, headers in zip(*(outcomes.column(name).to_pylist() for name in _TOLD), strict=True)
        ]
        failure = outcomes.column("Failure")
        told = [*failure.flatten(), pa.array(waits, pa.duration("us"))]
        recovered = pa.StructArray.from_arrays(told, fields=list(_RECOVERED), mask=failure.is_null())
        return outcomes.set_column(_SCHEMA.get_field_index("Failure"), "Failure", recovered)

    def _again(self, n: int, headers: str) -> bool:
        tried = (parse_headers(headers) or {}).get(RETRIES, "0")
        return (n + self.tries) % 2 == 0 and int(tried) < _MOST_RETRIES


class _Frame:
    """A frame of a batch; it runs a transform of Arrow at once, as one task."""

    columns, schema = JOINT_SCHEMA.names, from_arrow_schema(JOINT_SCHEMA)

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._batch = pa.RecordBatch.from_pylist(list(rows), JOINT_SCHEMA)

    def mapInArrow(self, task: Any, _: object) -> Iterator[pa.RecordBatch]:  # noqa: N802 -- Spark's name
        return task(iter([self._batch]))  # type: ignore[no-any-return] # as Spark calls it


def outcomes(function: Answers, rows: Iterable[dict[str, Any]], places: Places) -> list[pa.RecordBatch]:
    """The outcomes of the rows of one task.

    :param rows: have the columns of the source, and ``Queue``.
    :param places: those of the sink.
    """
    transform: Any = each_message(function, naming=places.naming, immediateRetries=0)
    return [function.recovered(each) for each in transform(_Frame(rows))]


def misjudged(outcomes: pa.RecordBatch, passed_on: Container[int]) -> set[int]:
    """The messages for which the function was called though they are not to be handled here, and those for
    which it was not called though they are.

    :param passed_on: those on their way to another database. Others are only stored here, or unreadable.
    """
    wrong = set()
    for row in outcomes.to_pylist():
        n, headers = int(row["Body"]), parse_headers(row["Headers"])
        ours = headers is not None and STORED_FOR not in headers and n not in passed_on
        if ours != (row["Outgoing"] is not None or row["Failure"] is not None):
            wrong.add(n)
    return wrong


def columns_of(given: SinkOptions) -> FrameColumns:
    """The columns of the frame, checked as the sink checks those of Spark's frame."""
    return FrameColumns.of(_spelled(), given)


@cache
def _spelled() -> list[tuple[str, str]]:
    """The columns as ``DataFrame.dtypes`` gives them."""
    return [(each.name, each.dataType.simpleString()) for each in from_arrow_schema(_SCHEMA)]


class _NoChild:
    """In the place of a child process: it handles messages in this one."""

    usable = True

    def __init__(self, load: Callable[[Seen], Outcomes], *, timeout: float) -> None:  # noqa: ARG002 -- as the other
        self.outcomes = load(Seen())

    def wait_until_loaded(self) -> None:
        """Do nothing: it is loaded already."""

    def end(self) -> None:
        """Do nothing: there is no process."""


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """Within the block no child process is made, and no alarm is set: pytest has one."""
    no_main = SimpleNamespace(current_thread=lambda: None, main_thread=threading.main_thread)
    with (
        mock.patch.object(child_handler, "ChildProcess", _NoChild),
        mock.patch.object(child_handler, "_MOST_IDLE", 0),
        mock.patch.object(handler_calls, "threading", no_main),
    ):
        yield
