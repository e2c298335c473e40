"""Checks the columns of a frame before anything of it is sent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlqueue_spark.errors import ConfigurationError, Unsendable
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import MESSAGE_ID
from sqlqueue_spark.options import ATOMIC, NO_OUTBOX, SinkOptions
from sqlqueue_spark.options.did_you_mean import did_you_mean
from sqlqueue_spark.plain_text import holds_password

_TEXT = ("string",)
#: The columns that a frame may have, each with the types that it may have, as Spark names them.
TYPES: Mapping[str, tuple[str, ...]] = {
    "Body": ("binary", "string"),
    "Headers": ("string", "map<string,string>"),
    "MessageId": _TEXT,
    "Destination": _TEXT,
    "Id": _TEXT,
    "CorrelationId": _TEXT,
    "ReplyToAddress": _TEXT,
    "TimeToBeReceived": ("interval day to second",),
    "Expires": ("timestamp",),
    "DeliverAt": ("timestamp",),
    "DelayDeliveryFor": ("interval day to second",),
    "EventType": _TEXT,
    # These two tell where a received row stood. They are not written.
    "Queue": _TEXT,
    "RowVersion": ("bigint",),
}
#: The fields of a message in the column Outgoing.
_OUTGOING = {
    name: types for name, types in TYPES.items() if name not in ("Id", "Expires", "Queue", "RowVersion")
}
#: The fields of the column Failure.
_FAILURE: Mapping[str, tuple[str, ...]] = {
    "ExceptionType": _TEXT,
    "Message": _TEXT,
    "StackTrace": _TEXT,
    "InnerExceptionType": _TEXT,
    "HelpLink": _TEXT,
    "Source": _TEXT,
    "Data": ("map<string,string>",),
    "TimeOfFailure": ("timestamp",),
    "RetryAfter": ("interval day to second",),
    "ErrorQueue": _TEXT,
    # Read by `recoverability`, not by the sink.
    "Unrecoverable": ("boolean",),
}
#: The columns that only a frame of outcomes may have; one of the first two makes it one.
_OUTCOMES: Mapping[str, tuple[str, ...]] = {
    "Outgoing": ("array<struct<…>>",),
    "Failure": ("struct<…>",),
    "Recoverable": ("boolean",),
    # When the handler of a message was called, for its copy in an audit queue.
    "ProcessingStarted": ("timestamp",),
    "ProcessingEnded": ("timestamp",),
}
#: The columns that say when a message is due.
_DELAYS = frozenset({"DeliverAt", "DelayDeliveryFor"})
#: What tells which received row a row of the frame was.
RECEIVED_ROW = ("Queue", "RowVersion", "Id")
#: Characters of a column's text in an error.
_LONGEST = 200
_NOTHING = "void"  # a column of NULLs


@dataclass(frozen=True, kw_only=True)
class FrameColumns:
    """The columns of one frame; ``names`` maps each known name to the frame's own spelling of it.

    :param outgoing: the fields of the column Outgoing; ``failure``: those of the column Failure.
    """

    names: Mapping[str, str]
    outgoing: Mapping[str, str] = field(default_factory=dict)
    failure: Mapping[str, str] = field(default_factory=dict)

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """A column of the frame by its known name; all NULL where the frame has none."""
        own = self.names.get(name)
        return pa.nulls(batch.num_rows) if own is None else batch.column(own)

    @contextlib.contextmanager
    def telling_rows_apart(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Add to an error which row of the batch it is about, if one of its columns tells it."""
        try:
            yield
        except Unsendable as error:
            names = ("RowVersion", "Id", "Queue") if self.received else ("MessageId", "Headers", "Id")
            told = {name: self.column(batch, name)[error.position].as_py() for name in names}
            if not self.received:
                headers = told.pop("Headers")
                its = dict(headers) if isinstance(headers, list) else parse_headers(headers) or {}
                told["MessageId"] = told["MessageId"] or its.get(MESSAGE_ID)
            named = [f"{name} {_shown(str(each))}" for name, each in told.items() if each is not None]
            if not named:
                raise
            raise ConfigurationError(f"{error} It is the row with {', '.join(named)}.") from error

    @property
    def received(self) -> bool:
        """Whether the rows were received. Then ``Id`` is the received row's, else that of the row to send."""
        return "RowVersion" in self.names

    @property
    def tells_rows(self) -> bool:
        """Whether each row tells which received row it was, so that it is passed on or has an outcome."""
        return self.names.keys() >= set(RECEIVED_ROW)

    @property
    def outcomes(self) -> bool:
        """Whether a row is the outcome of a received message: what it sends, or why it failed."""
        return not {"Outgoing", "Failure"}.isdisjoint(self.names)

    @property
    def delays(self) -> bool:
        """Whether a message may wait until it is due."""
        return any(not _DELAYS.isdisjoint(names) for names in (self.names, self.outgoing))

    @property
    def events(self) -> bool:
        """Whether rows of the frame may be events. What a handled row sends is looked at when it is sent."""
        return "EventType" in self.names

    @classmethod
    def of(cls, columns: Sequence[tuple[str, str]], options: SinkOptions) -> FrameColumns:
        """Check the columns of a frame.

        :param columns: their names and types, as ``DataFrame.dtypes`` gives them.
        :raises ConfigurationError: a column is unknown, missing or of another type, or two contradict each
            other.
        """
        outcomes = not {"outgoing", "failure"}.isdisjoint(name.lower() for name, _ in columns)
        known = {**TYPES, **_OUTCOMES} if outcomes else TYPES
        names = _named(columns, known, "A message has no column")
        found = cls(
            names=names,
            outgoing=_fields("Outgoing", columns, _OUTGOING),
            failure=_fields("Failure", columns, _FAILURE),
        )
        if outcomes:
            _check_outcomes(found, options)
        elif options.audit_queue is not None:
            raise ConfigurationError(
                "The option auditQueue is for outcomes of received messages, and the frame has neither a "
                "column Outgoing nor Failure; drop the option."
            )
        else:
            _check_together(found, options)
        return found


def _shown(text: str) -> str:
    if holds_password(text):
        return "…"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _named(
    columns: Iterable[tuple[str, str]], known: Mapping[str, tuple[str, ...]], unknown: str
) -> dict[str, str]:
    """The known name of each column, with the frame's spelling of it."""
    lowered = {name.lower(): name for name in known}
    names: dict[str, str] = {}
    for given, type_ in columns:
        if (name := lowered.get(given.lower())) is None:
            hint = did_you_mean(given, known, f"drop it, or rename it to one of {', '.join(known)}.")
            raise ConfigurationError(f"{unknown} {given!r}; {hint}")
        if name in names:
            raise ConfigurationError(
                f"There are two columns {names[name]} and {given}, which mean the same; drop one."
            )
        if type_ != _NOTHING and not _fits(type_, known[name]):
            wanted = " or ".join(known[name])
            raise ConfigurationError(f"The column {given} is {type_}; cast it to {wanted}.")
        names[name] = given
    return names


def _fits(type_: str, wanted: tuple[str, ...]) -> bool:
    if "…" in wanted[0]:
        return type_.startswith(wanted[0].partition("…")[0])
    # Spark spells an interval of days and time in ten ways, from `interval day` to `interval hour to second`.
    between = type_.startswith("interval ") and not {"year", "month"} & set(type_.split())
    return type_ in wanted or (between and "interval day to second" in wanted)


def _fields(
    column: str, columns: Iterable[tuple[str, str]], known: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """The fields of a nested column; none where the column is not there, or all NULL."""
    begin, _, end = _OUTCOMES[column][0].partition("…")
    types = [type_ for name, type_ in columns if name.lower() == column.lower() and type_ != _NOTHING]
    fields = [field for each in types for field in _split(each[len(begin) : -len(end)])]
    return _named(fields, known, f"The column {column} has no field")


def _split(inner: str) -> Iterator[tuple[str, str]]:
    """The fields in what Spark writes between ``struct<`` and ``>``, each with its type."""
    depth, start = 0, 0
    for at, character in enumerate(f"{inner},"):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and not depth:
            name, _, type_ = inner[start:at].partition(":")
            yield name, type_
            start = at + 1


def _check_together(columns: FrameColumns, options: SinkOptions) -> None:
    names = columns.names
    if "Body" not in names:
        raise ConfigurationError(
            "There is no column Body to send; name the payload so: df.select(…, to_json(…).alias('Body'))."
        )
    _check_times(names)
    _check_destination(names, options)
    if options.publish:
        for name in ("Destination", *sorted(_DELAYS)):
            if name in names:
                raise ConfigurationError(
                    f"The option publish is on, and the frame has the column {name}, but an event goes at "
                    "once to the queues that have subscribed to it; drop the column, or drop publish and "
                    "name in the column EventType which rows are events."
                )
    ids = {"MessageId", "Headers", *(["Id"] if columns.received else [])}
    if options.uses_outbox and not ids & names.keys():
        raise ConfigurationError(
            "An outbox needs message ids, and there is neither a column MessageId nor Headers; make ids of "
            "key columns, withColumn('MessageId', functions.deterministic_id('order', 'line')), or set "
            "outbox to none."
        )


def _check_times(names: Mapping[str, str]) -> None:
    for one, other in (("TimeToBeReceived", "Expires"), ("DeliverAt", "DelayDeliveryFor")):
        if {one, other} <= names.keys():
            raise ConfigurationError(f"Both {one} and {other} are given; drop one of them.")
    for delay in _DELAYS & names.keys():
        for end in ("TimeToBeReceived", "Expires"):
            if end in names:
                raise ConfigurationError(
                    f"Both {delay} and {end} are given, and a message that waits cannot expire meanwhile; "
                    "drop one of them."
                )


def _check_outcomes(columns: FrameColumns, options: SinkOptions) -> None:
    names = columns.names
    missing = [name for name in (*RECEIVED_ROW, "Headers", "Body") if name not in names]
    if missing:
        raise ConfigurationError(
            f"The frame has the column {'Outgoing' if 'Outgoing' in names else 'Failure'}, so each of its "
            f"rows is the outcome of a received message, but it has no column {missing[0]}; keep the "
            "columns of the source, and give Queue the address of its queue."
        )
    if options.error_queue is None:
        raise ConfigurationError(
            "The rows of the frame are outcomes of received messages, and there is no option errorQueue, "
            "where a message goes that fails; name a queue, for example error."
        )
    if columns.failure and "ExceptionType" not in columns.failure:
        raise ConfigurationError(
            "The column Failure has no field ExceptionType, by which people group failures; give it one, "
            "like the full name of an exception's class."
        )
    if options.outbox == NO_OUTBOX and options.transaction_mode != ATOMIC:
        raise ConfigurationError(
            "The rows of the frame are outcomes of received messages, and without an outbox a batch that "
            "Spark runs again would have them twice; set outbox to optimistic, or transactionMode to "
            "sendsAtomicWithReceive."
        )
    check = _check_outgoing if "Outgoing" in names else _check_together
    check(columns, options)


def _check_outgoing(columns: FrameColumns, options: SinkOptions) -> None:
    names = columns.names
    if columns.outgoing and "Body" not in columns.outgoing:
        raise ConfigurationError(
            "The column Outgoing has no field Body, the payload of a message; give it one."
        )
    if options.publish:
        raise ConfigurationError(
            "The option publish is on, and the frame has the column Outgoing, in which each message says "
            "for itself whether it is an event; drop the option, and give events the field EventType."
        )
    for name in ("Destination", "EventType", "TimeToBeReceived", *sorted(_DELAYS)):
        if name in names:
            raise ConfigurationError(
                f"The frame has the columns Outgoing and {name}; a message out has its {name} as a field of "
                "Outgoing, so drop the column."
            )
    if columns.outgoing:
        _check_times(columns.outgoing)
        _check_destination(columns.outgoing, options)


def _check_destination(names: Mapping[str, str], options: SinkOptions) -> None:
    if options.queue is None and not options.publish and {"Destination", "EventType"}.isdisjoint(names):
        raise ConfigurationError(
            "Nothing says where to send: give the option queue, or the column Destination with an address "
            "for each row, or publish rows by the column EventType."
        )
