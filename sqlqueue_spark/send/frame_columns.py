"""Checks the columns of a frame before anything of it is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.options.fields import suggestion

_TEXT = ("string",)
#: The columns that a frame may have, each with the types that it may have, as Spark names them.
_TYPES: Mapping[str, tuple[str, ...]] = {
    "Body": ("binary", "string"),
    "Headers": ("string", "map<string,string>"),
    "MessageId": _TEXT,
    "Destination": _TEXT,
    "Id": _TEXT,
    "CorrelationId": _TEXT,
    "ReplyToAddress": _TEXT,
    "TimeToBeReceived": ("interval day to second",),
    "Expires": ("timestamp",),
    # These two tell where a received row stood. They are not written.
    "Queue": _TEXT,
    "RowVersion": ("bigint",),
}
_NOTHING = "void"  # a column of NULLs


@dataclass(frozen=True, kw_only=True)
class FrameColumns:
    """The columns of one frame; ``names`` maps each known name to the frame's own spelling of it."""

    names: Mapping[str, str]

    @property
    def received(self) -> bool:
        """Whether the rows were received. If so, ``Id`` is the received row's Id, else it is the Id of the row to send."""
        return "RowVersion" in self.names

    @classmethod
    def of(cls, columns: Sequence[tuple[str, str]], options: SinkOptions) -> FrameColumns:
        """Check the columns of a frame.

        :param columns: their names and types, as ``DataFrame.dtypes`` gives them.
        :raises ConfigurationError: a column is unknown, missing or of another type, or two contradict each other.
        """
        known = {name.lower(): name for name in _TYPES}
        names: dict[str, str] = {}
        for given, type_ in columns:
            name = known.get(given.lower())
            if name is None:
                hint = suggestion(given, _TYPES, f"drop it, or rename it to one of {', '.join(_TYPES)}.")
                raise ConfigurationError(f"A message has no column {given!r}; {hint}")
            if name in names:
                raise ConfigurationError(
                    f"There are two columns {names[name]} and {given}, which mean the same; drop one."
                )
            if type_ != _NOTHING and not _fits(type_, _TYPES[name]):
                wanted = " or ".join(_TYPES[name])
                raise ConfigurationError(f"The column {given} is {type_}; cast it to {wanted}.")
            names[name] = given
        found = cls(names=names)
        _check_together(found, options)
        return found


def _fits(type_: str, wanted: tuple[str, ...]) -> bool:
    # Spark spells an interval of days and time in ten ways, from `interval day` to `interval hour to second`.
    between = type_.startswith("interval ") and not {"year", "month"} & set(type_.split())
    return type_ in wanted or (between and "interval day to second" in wanted)


def _check_together(columns: FrameColumns, options: SinkOptions) -> None:
    names = columns.names
    if "Body" not in names:
        raise ConfigurationError(
            "There is no column Body to send; name the payload so: df.select(…, to_json(…).alias('Body'))."
        )
    if {"TimeToBeReceived", "Expires"} <= names.keys():
        raise ConfigurationError("Both TimeToBeReceived and Expires are given; drop one of them.")
    if options.queue is None and "Destination" not in names:
        raise ConfigurationError(
            "Nothing says where to send: give the option queue, or the column Destination with an address for each row."
        )
    ids = {"MessageId", "Headers", *(["Id"] if columns.received else [])}
    if options.uses_outbox and not ids & names.keys():
        raise ConfigurationError(
            "An outbox needs message ids, and there is neither a column MessageId nor Headers; make ids of key columns, "
            "withColumn('MessageId', functions.deterministic_id('order', 'line')), or set outbox to none."
        )
