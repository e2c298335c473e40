"""The columns that a frame to be sent may have, checked before anything is sent."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions

_TEXT = ("string",)
#: What is understood, with Spark's names for the types that each may have.
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
}
_NOTHING = "void"  # a column of NULLs


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of one frame; ``names`` maps what is understood to the frame's own spelling."""

    names: Mapping[str, str]

    @classmethod
    def of(cls, columns: Sequence[tuple[str, str]], options: SinkOptions) -> Columns:
        """Check the columns of a frame, given by name and type as in ``DataFrame.dtypes``.

        :raises ConfigurationError: a column is unknown, missing or of another type, or two contradict each other.
        """
        known = {name.lower(): name for name in _TYPES}
        names: dict[str, str] = {}
        for given, type_ in columns:
            name = known.get(given.lower())
            if name is None:
                raise ConfigurationError(_unknown(given))
            if name in names:
                raise ConfigurationError(
                    f"There are two columns {names[name]} and {given}, which mean the same; drop one."
                )
            if type_ != _NOTHING and not _fits(type_, _TYPES[name]):
                wanted = " or ".join(_TYPES[name])
                raise ConfigurationError(f"The column {given} is {type_}; cast it to {wanted}.")
            names[name] = given
        _check_together(names, options)
        return cls(names=names)


def _fits(type_: str, wanted: tuple[str, ...]) -> bool:
    # An interval of days and time has ten spellings, from `interval day` to `interval hour to second`.
    between = type_.startswith("interval ") and not {"year", "month"} & set(type_.split())
    return type_ in wanted or (between and "interval day to second" in wanted)


def _check_together(names: Mapping[str, str], options: SinkOptions) -> None:
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
    if options.uses_outbox and not {"MessageId", "Headers"} & names.keys():
        raise ConfigurationError(
            "An outbox needs message ids, and there is neither a column MessageId nor Headers; make ids of key columns, "
            "withColumn('MessageId', functions.deterministic_id('order', 'line')), or set outbox to none."
        )


def _unknown(given: str) -> str:
    lowered = {name.lower(): name for name in _TYPES}
    near = difflib.get_close_matches(given.lower(), lowered, n=1)
    hint = (
        f"did you mean {lowered[near[0]]}?"
        if near
        else f"drop it, or rename it to one of {', '.join(_TYPES)}."
    )
    return f"A message has no column {given!r}; {hint}"
