"""The columns of outcomes: what each received message sends, or why it failed, and when it was handled."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from sqlqueue_spark.handling.answers import Outgoing
from sqlqueue_spark.handling.handler_calls import Limits
from sqlqueue_spark.handling.received_message import ReceivedMessage
from sqlqueue_spark.handling.stack_trace import stack_trace
from sqlqueue_spark.messages.failure_headers import Failure

_TIME = pa.timestamp("us", tz="UTC")
#: The parts of :class:`Outgoing`, in its order.
_PARTS = ("Destination", "Headers", "Body", "MessageId", "ReplyToAddress", "EventType")
_MESSAGE = pa.struct([(name, pa.binary() if name == "Body" else pa.string()) for name in _PARTS])
_FAILURE = pa.struct(
    [
        ("ExceptionType", pa.string()),
        ("InnerExceptionType", pa.string()),
        ("Message", pa.string()),
        ("StackTrace", pa.string()),
        ("Data", pa.map_(pa.string(), pa.string())),
        ("TimeOfFailure", _TIME),
        ("Unrecoverable", pa.bool_()),
    ]
)
#: The columns that are added to those of the source.
COLUMNS = pa.schema(
    [
        ("Outgoing", pa.list_(_MESSAGE)),
        ("Failure", _FAILURE),
        ("ProcessingStarted", _TIME),
        ("ProcessingEnded", _TIME),
    ]
)


class Outcome(NamedTuple):
    """A row of :data:`COLUMNS`: what a message sends or why it failed; neither where no function was called.

    Where the function returned, ``started`` and ``ended`` tell its last call, in microseconds since 1970.
    """

    sends: Sequence[Outgoing] | None = None
    failure: dict[str, Any] | None = None
    started: int | None = None
    ended: int | None = None


def outcome_columns(outcomes: Sequence[Outcome]) -> pa.RecordBatch:
    """The columns, a row an outcome.

    :raises Exception: of many kinds, where a text is not Unicode, or where there are too many bytes.
    """
    return pa.RecordBatch.from_struct_array(pa.array(outcomes, pa.struct(COLUMNS)))


def with_outcomes(messages: pa.RecordBatch, outcomes: pa.RecordBatch) -> pa.RecordBatch:
    """The messages with these columns behind their own."""
    return pa.RecordBatch.from_arrays(
        [*messages.columns, *outcomes.columns], [*messages.schema.names, *outcomes.schema.names]
    )


def failed(
    error: BaseException, message: ReceivedMessage | None, limits: Limits, packages: Collection[str] = ()
) -> Outcome:
    """The outcome of a message whose handler raised this, or ended or hung its process.

    :param message: None for one that no function is called for.
    :param packages: the packages of the handler's functions.
    """
    if message is None:
        return Outcome()
    trace = ""
    try:
        told = Failure.of(error)
        trace = stack_trace(error, packages)
    except BaseException as another:  # noqa: BLE001 -- the exception is a user's, and may do anything
        told = Failure(
            exception_type=_text(type(error).__name__),
            message=f"(it cannot be told: {_text(type(another).__name__)})",
        )
    failure = {
        "ExceptionType": _text(told.exception_type),
        "InnerExceptionType": None if (inner := told.inner_exception_type) is None else _text(inner),
        "Message": _text(told.message),
        "StackTrace": _text(trace),
        "Data": {"Message type": message.type or "", "Message ID": message.id},
        "TimeOfFailure": datetime.now(UTC),
        "Unrecoverable": limits.is_hopeless(error),
    }
    return Outcome(failure=failure)


def _text(text: str) -> str:
    """The text as a column can hold it: without halves of astral characters."""
    return text if text.isascii() else text.encode(errors="replace").decode()
