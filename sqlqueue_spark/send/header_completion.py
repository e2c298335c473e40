"""Headers of messages on their way out: looked into, completed, and written as the .NET senders write them.

Most rows come from a queue, so their headers are written in that way already, and those of one sender have the same
names in the same order: the same shape. Such rows are checked and looked into by one regular expression a shape and
column, in C, and then nothing is parsed or written again: what is missing is added at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.message import MESSAGE_ID, format_headers, format_member, parse_headers
from sqlqueue_spark.messages.outgoing import COMPLETED, CORRELATION_ID, REPLY_TO_ADDRESS, TIME_TO_BE_RECEIVED

#: The headers whose values are asked for.
_ASKED = (MESSAGE_ID, CORRELATION_ID, REPLY_TO_ADDRESS, TIME_TO_BE_RECEIVED)
#: As .NET writes most headers: all ASCII, and no escape but the slash's, of which names have none either.
_PLAIN = r"[\x20\x21\x23-\x2e\x30-\x5b\x5d-\x7e]"
_NAME = re.compile(f"{_PLAIN}*")
_VALUE = rf"(?:{_PLAIN}|\\/)*"
#: So many shapes of a column are learned; a row of yet another one is parsed by itself.
_SHAPES = 8
_SHOWN = 80


class Unsendable(ConfigurationError):
    """A row that cannot be sent as it is, told by its position among the rows that it stands with, and the remedy.

    Whoever has the frame's columns adds which row it is.
    """

    def __init__(self, position: int, text: str) -> None:
        super().__init__(text)
        self.position = position


@dataclass(frozen=True, kw_only=True)
class Alike:
    """Rows that have the same of the headers that a row may get, so that they get the same.

    ``positions`` are theirs in the column, ``names`` what they have of these headers, ``texts`` their JSON as .NET writes
    it, ``bare`` when that is ``{}``, and ``asked`` the values of those headers that are asked for and are there.
    """

    positions: pa.Array
    names: frozenset[str]
    texts: pa.Array
    bare: bool
    asked: Mapping[str, pa.Array]

    def completed(self, standard: Mapping[str, str], own: Sequence[pa.Array]) -> pa.Array:
        """The JSON of all headers, of those standard ones that are not there, and of the rows' own additions.

        :param standard: by name, members as :func:`format_member` writes them.
        :param own: columns of such members, of names that are not there; NULL where a row needs none.
        """
        lacking = ",".join(member for name, member in standard.items() if name not in self.names)
        more = [each.cast(pa.binary()) for each in own]
        if lacking:
            more.insert(0, pa.scalar(lacking.encode()))
        if not more:
            return self.texts
        if not self.bare:
            more.insert(0, pc.binary_slice(self.texts.cast(pa.binary()), 1, -1))
        members = pc.binary_join_element_wise(*more, b",", null_handling="skip")
        return pc.binary_join_element_wise(b"{", members, b"}", b"").cast(pa.string())


def alike(column: pa.Array) -> list[Alike]:
    """The rows of a column of headers, which are JSON, a map or NULL, by what they have.

    :raises Unsendable: headers are poison.
    """
    if not pa.types.is_string(column.type):
        return _parsed(enumerate(column.to_pylist()))
    positions = pa.array(range(len(column)), pa.int32())
    groups: list[Alike] = []
    odd: list[tuple[int, str | None]] = []
    learned = 0
    while len(column) and learned < _SHAPES:
        text = column[0].as_py()
        shape = _Shape.of(text) if text else None
        if shape is not None:
            learned += 1
            values = pc.extract_regex(column, shape.pattern)
            if values[0].is_valid:
                its, others = values.is_valid(), values.is_null()
                groups.append(shape.alike(positions.filter(its), column.filter(its), values.filter(its)))
                positions, column = positions.filter(others), column.filter(others)
                continue
        odd.append((positions[0].as_py(), text))
        positions, column = positions[1:], column[1:]
    odd += zip(positions.to_pylist(), column.to_pylist(), strict=True)
    return groups + _parsed(odd)


def members(name: str, values: pa.Array) -> pa.Array:
    """Headers as they stand in the JSON, one a value; NULL where that is NULL."""
    if pc.all(pc.match_substring_regex(values, rf"\A{_PLAIN}*\z")).as_py():
        return pc.binary_join_element_wise(f'"{name}":"', values, '"', "")
    written = [None if value is None else format_member(name, value) for value in values.to_pylist()]
    return pa.array(written, pa.string())


@dataclass(frozen=True, slots=True)
class _Shape:
    """The names of headers in their order; ``pattern`` matches what has just these, all as .NET writes them."""

    names: frozenset[str]
    asked: Mapping[str, str]
    pattern: str

    @classmethod
    def of(cls, text: str) -> _Shape | None:
        """The shape of a row; None where it has none that rows could share."""
        parts = text.split('"')
        names = parts[1::4]
        once = frozenset(names)
        if len(once) < len(names) or len(parts) != 4 * len(names) + 1 or not all(map(_NAME.fullmatch, names)):
            return None
        asked = {name: f"v{number}" for number, name in enumerate(each for each in names if each in _ASKED)}
        written = (
            rf'"\Q{name}\E":"{f"(?P<{asked[name]}>{_VALUE})" if name in asked else _VALUE}"' for name in names
        )
        # The empty group, because an expression without any cannot be asked what it found.
        return cls(once, asked, rf"\A\{{{','.join(written)}\}}(?P<end>)\z")

    def alike(self, positions: pa.Array, texts: pa.Array, values: pa.Array) -> Alike:
        """Rows of this shape, given what its expression found in each."""
        return Alike(
            positions=positions,
            names=COMPLETED & self.names,
            texts=texts,
            bare=not self.names,
            asked={
                name: pc.replace_substring(pc.struct_field(values, group), "\\/", "/")
                for name, group in self.asked.items()
            },
        )


def _parsed(rows: Iterable[tuple[int, Any]]) -> list[Alike]:
    """Rows that are read one by one, each with its position."""
    groups: dict[tuple[frozenset[str], bool], list[tuple[int, Mapping[str, str]]]] = {}
    for position, given in rows:
        headers = _read(given, position)
        groups.setdefault((COMPLETED.intersection(headers), not headers), []).append((position, headers))
    return [
        Alike(
            positions=pa.array([position for position, _ in found], pa.int32()),
            names=names,
            texts=pa.array([format_headers(headers) for _, headers in found], pa.string()),
            bare=bare,
            asked={
                name: pa.array([headers[name] for _, headers in found], pa.string())
                for name in names.intersection(_ASKED)
            },
        )
        for (names, bare), found in groups.items()
    ]


def _read(given: Any, position: int) -> Mapping[str, str]:
    if given is None:
        return {}
    if isinstance(given, list):
        return {name: value for name, value in given if value is not None}
    headers = parse_headers(given)
    if headers is None:
        raise Unsendable(
            position,
            f"The headers of a row are not a JSON object of strings: {str(given)[:_SHOWN]!r}; filter such rows, or "
            "give them headers of their own.",
        )
    return headers
