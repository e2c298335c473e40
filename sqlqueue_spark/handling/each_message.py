"""``each_message``: a transform of a frame that calls a Python function for each message."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.handling.answers import Outgoing, outgoing
from sqlqueue_spark.handling.calls import Function, Handler, alarms
from sqlqueue_spark.handling.received_message import ReceivedMessage
from sqlqueue_spark.messages.addresses import Address
from sqlqueue_spark.messages.failed import FAILED_QUEUE, Failure
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, parse_headers
from sqlqueue_spark.options.fields import duration

_TEXT = StringType()
#: The columns that are added, as Spark and as Arrow name their types.
_ADDED = (
    StructField(
        "Outgoing",
        ArrayType(
            StructType(
                [
                    StructField("Destination", _TEXT),
                    StructField("Headers", _TEXT),
                    StructField("Body", BinaryType()),
                    StructField("MessageId", _TEXT),
                    StructField("ReplyToAddress", _TEXT),
                ]
            )
        ),
    ),
    StructField(
        "Failure",
        StructType(
            [
                *(
                    StructField(name, _TEXT)
                    for name in ("ExceptionType", "InnerExceptionType", "Message", "StackTrace")
                ),
                StructField("Data", MapType(_TEXT, _TEXT)),
                StructField("TimeOfFailure", TimestampType()),
            ]
        ),
    ),
)
_TEXTS = pa.map_(pa.string(), pa.string())
_MESSAGE = pa.schema(
    [
        ("Destination", pa.string()),
        ("Headers", pa.string()),
        ("Body", pa.binary()),
        ("MessageId", pa.string()),
        ("ReplyToAddress", pa.string()),
    ]
)
_FAILURE = pa.struct(
    [
        ("ExceptionType", pa.string()),
        ("InnerExceptionType", pa.string()),
        ("Message", pa.string()),
        ("StackTrace", pa.string()),
        ("Data", _TEXTS),
        ("TimeOfFailure", pa.timestamp("us", tz="UTC")),
    ]
)
_NEEDED = ("Id", "Headers", "Body", "RowVersion")


def each_message(
    function: Function | Mapping[str, Function],
    *,
    queue: str | None = None,
    immediateRetries: int = 5,  # noqa: N803 -- the name of the option
    handlerTimeout: str | timedelta = "30s",  # noqa: N803 -- the name of the option
    unrecoverable: tuple[type[BaseException], ...] = (),
) -> Callable[[DataFrame], DataFrame]:
    """A transform that calls a function for each message; what it answers is the message's outcome for the sink::

        def handle(message):
            order = message.json()
            return [Reply("Shop.OrderAccepted, Shop", {"order": order["id"]}), Send("Shipping", "Shop.ShipOrder, Shop", order)]

        outcomes = messages.transform(each_message(handle, queue="orders"))
        outcomes.writeStream.foreachBatch(SqlQueueSink(url=url, endpoint="Shop.Spark", errorQueue="error")).start()

    There is one row for each received message: the source's columns, ``Queue``, ``Outgoing`` and ``Failure``. Failure is NULL where the
    function returned. What the sink sends of it goes out exactly once; what the function does outside the database is done at least
    once. Headers of relation are set as a .NET endpoint sets them: RelatedTo, CorrelationId, ConversationId, and our own queue as
    ReplyToAddress. The function is not called for a row whose headers cannot be read, nor for a delayed message on its way to another
    queue; both fail in the sink.

    :param function: takes a :class:`ReceivedMessage`, and returns nothing, a :class:`Send`, a :class:`Reply`, or several of them. Or
        functions by the full names of message types, without their assemblies; a message of another type fails. It goes to the
        workers by cloudpickle, or by name where its module is installed there.
    :param queue: the address of the queue in which the messages were received, where the frame has no column ``Queue``.
    :param immediateRetries: how often it is called again at once when it raises.
    :param handlerTimeout: how long a call may take, such as ``500ms`` or ``30s``.
    :param unrecoverable: exceptions after which it is not called again. A body that ``json()`` cannot read, an answer that is none,
        and a type without a function are such already.
    :raises ConfigurationError: an argument is wrong; or, when it is applied, the frame lacks a column.
    """
    functions = function.values() if isinstance(function, Mapping) else [function]
    if not all(map(callable, functions)):
        raise ConfigurationError(
            f"each_message was given {type(function).__name__}; give a function, or functions by message type."
        )
    if immediateRetries < 0:
        raise ConfigurationError(f"immediateRetries is {immediateRetries}; give 0 or more.")
    try:
        timeout = handlerTimeout if isinstance(handlerTimeout, timedelta) else duration(handlerTimeout)
    except ValueError as error:
        raise ConfigurationError(f"handlerTimeout is {handlerTimeout!r}; write {error}.") from error
    handler = Handler(
        functions=function,
        immediate_retries=immediateRetries,
        timeout=timeout.total_seconds(),
        unrecoverable=unrecoverable,
    )

    def transform(messages: DataFrame) -> DataFrame:
        names = {name.lower(): name for name in messages.columns}
        missing = [
            name for name in (*_NEEDED, *(["Queue"] if queue is None else [])) if name.lower() not in names
        ]
        if missing:
            raise ConfigurationError(
                f"each_message needs the column {missing[0]} of the source, which the frame has not; keep it"
                + (", or give each_message the queue's address as queue." if missing == ["Queue"] else ".")
            )
        if "queue" not in names:
            messages = messages.withColumn("Queue", F.lit(queue))
        schema = StructType([*messages.schema.fields, *_ADDED])
        return messages.mapInArrow(_Task(handler), schema)

    return transform


@dataclass(frozen=True)
class _Task:
    """What a worker does with its part of a batch."""

    handler: Handler

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with alarms():
            for batch in batches:
                told = [self._outcome(message) for message in _received(batch)]
                sends = _lists([sends for sends, _ in told])
                failures = pa.array([failure for _, failure in told], _FAILURE)
                names = [*batch.schema.names, "Outgoing", "Failure"]
                yield pa.RecordBatch.from_arrays([*batch.columns, sends, failures], names)

    def _outcome(
        self, message: ReceivedMessage | None
    ) -> tuple[list[Outgoing] | None, dict[str, Any] | None]:
        """What a message sends, and its failure."""
        if message is None:
            return None, None
        try:
            return [outgoing(each, message) for each in self.handler.answers(message)], None
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- a handler is a user's, and may raise anything
            return None, _failure(error, message)


def _lists(sends: Sequence[Sequence[Outgoing] | None]) -> pa.Array:
    """The column Outgoing. Built column by column it costs a third of what Arrow takes for dicts in lists."""
    ends = itertools.accumulate((len(each or ()) for each in sends), initial=0)
    offsets = pa.array(ends, pa.int32())
    flat = list(zip(*itertools.chain.from_iterable(filter(None, sends)), strict=True)) or [()] * len(_MESSAGE)
    columns = [pa.array(values, each.type) for values, each in zip(flat, _MESSAGE, strict=True)]
    messages = pa.StructArray.from_arrays(columns, fields=list(_MESSAGE))
    failed = pa.array([each is None for each in sends], pa.bool_())
    return pa.ListArray.from_arrays(offsets, messages, mask=failed)


def _received(batch: pa.RecordBatch) -> Iterator[ReceivedMessage | None]:
    """The messages of a batch; None for one that no function is called for."""
    own = {name.lower(): name for name in batch.schema.names}
    columns = [
        batch.column(own[name]).to_pylist() if name in own else [None] * batch.num_rows
        for name in ("queue", "id", "rowversion", "headers", "body", "replytoaddress")
    ]
    for queue, row_id, row_version, text, body, reply_to in zip(*columns, strict=True):
        headers = parse_headers(text)
        if headers is None or _on_its_way(headers, queue):
            yield None
        else:
            content = body.encode() if isinstance(body, str) else body or b""
            yield ReceivedMessage(
                queue=queue, row_id=row_id, row_version=row_version, headers=headers, body=content, reply_to_column=reply_to,
            )  # fmt: skip


def _on_its_way(headers: Mapping[str, str], queue: str) -> bool:
    """Whether a message is in transit to another queue."""
    to = headers.get(FORWARD_DESTINATION)
    if not to or FAILED_QUEUE in headers:
        return False
    try:
        wanted, own = (Address.parse(each, quoted=True) for each in (to, queue))
    except ConfigurationError:
        return True
    same_schema = None in (wanted.schema, own.schema) or wanted.schema == own.schema
    return wanted.table.casefold() != own.table.casefold() or not same_schema


def _failure(error: BaseException, message: ReceivedMessage) -> dict[str, Any]:
    told = Failure.of(error)
    return {
        "ExceptionType": told.exception_type,
        "InnerExceptionType": told.inner_exception_type,
        "Message": told.message,
        "StackTrace": told.stack_trace,
        "Data": {"Message type": message.type or "", "Message ID": message.id},
        "TimeOfFailure": datetime.now(UTC),
    }
