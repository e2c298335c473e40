"""Headers of a message on its way out: looked into, completed, and written as the .NET senders write them.

Most rows come from a queue, so their headers are written in that way already, and those of one sender have the same
names in the same order: the same shape. Such rows are checked and looked into by one regular expression a shape and
column, in C, and then nothing is parsed or written again: what is missing is added at the end.
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages import MESSAGE_ID, format_headers, parse_headers
from sqlqueue_spark.outgoing import CORRELATION_ID, REPLY_TO_ADDRESS, TIME_TO_BE_RECEIVED

#: The headers whose values are asked for.
_ASKED = (MESSAGE_ID, CORRELATION_ID, REPLY_TO_ADDRESS, TIME_TO_BE_RECEIVED)
#: As .NET writes most headers: all ASCII, and no escape but the slash's, of which names have none either.
_NAME = re.compile(r"[\x20\x21\x23-\x2e\x30-\x5b\x5d-\x7e]*")
_VALUE = r"(?:[\x20\x21\x23-\x2e\x30-\x5b\x5d-\x7e]|\\/)*"
#: So many shapes of a column are learned; a row of yet another one is parsed by itself.
_SHAPES = 8
_SHOWN = 80


class Headers(ABC):
    """The headers of one row: which names there are, and about how many characters their JSON has."""

    __slots__ = ("names", "size")

    names: frozenset[str]
    size: int

    @abstractmethod
    def get(self, name: str) -> str | None:
        """One of the headers that are asked for, None where it is not there."""

    @abstractmethod
    def completed(self, standard: Standard, own: Sequence[str]) -> str:
        """The JSON of all headers, of those standard ones that are not there, and of the row's own additions.

        :param own: members as :func:`format_member` writes them, of names that are not there.
        """


class Standard:
    """Headers that every row of a batch is to have, unless it has its own."""

    def __init__(self, members: Mapping[str, str]) -> None:
        """:param members: by name, members as :func:`format_member` writes them."""
        self._members = members
        self._lacking: dict[frozenset[str], str] = {}

    def lacking(self, names: frozenset[str], own: Sequence[str]) -> str:
        """The members that a row with these headers lacks, and the row's own additions."""
        found = self._lacking.get(names)
        if found is None:
            lacking = (each for name, each in self._members.items() if name not in names)
            found = self._lacking[names] = ",".join(lacking)
        return ",".join([found, *own] if found else own)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The names of headers in their order; ``pattern`` matches what has just these, all as .NET writes them."""

    names: frozenset[str]
    asked: Mapping[str, int]
    pattern: str

    @classmethod
    def of(cls, text: str) -> _Shape | None:
        """The shape of a row; None where it has none that rows could share."""
        parts = text.split('"')
        names = parts[1::4]
        once = frozenset(names)
        if len(once) < len(names) or len(parts) != 4 * len(names) + 1 or not all(map(_NAME.fullmatch, names)):
            return None
        asked = {name: number for number, name in enumerate(each for each in names if each in _ASKED)}
        members = (
            rf'"\Q{name}\E":"{f"(?P<v{asked[name]}>{_VALUE})" if name in asked else _VALUE}"'
            for name in names
        )
        # The empty group, because an expression without any cannot be asked what it found.
        return cls(once, asked, rf"\A\{{{','.join(members)}\}}(?P<end>)\z")

    def found(self, texts: pa.Array) -> tuple[list[bool], Iterable[tuple[str, ...]]]:
        """Which rows are of this shape, and what each has of the headers that are asked for, as it is written."""
        found = pc.extract_regex(texts, self.pattern)
        its = found.is_valid().to_pylist()
        if not self.asked:
            return its, itertools.repeat(())
        return its, zip(
            *(found.field(f"v{each}").to_pylist() for each in range(len(self.asked))), strict=True
        )


class WrittenHeaders(Headers):
    """Headers of a known shape."""

    __slots__ = ("_asked", "_text", "_values")

    def __init__(self, text: str, shape: _Shape, values: Sequence[str]) -> None:
        self.names = shape.names
        self.size = len(text)
        self._text = text
        self._asked = shape.asked
        self._values = values

    def get(self, name: str) -> str | None:
        at = self._asked.get(name)
        return None if at is None else self._values[at].replace("\\/", "/")

    def completed(self, standard: Standard, own: Sequence[str]) -> str:
        more = standard.lacking(self.names, own)
        if not more:
            return self._text
        return f"{self._text[:-1]}{',' if self.names else ''}{more}}}"


class ReadHeaders(Headers):
    """Headers that were given as a map, or had to be read."""

    __slots__ = ("_headers",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.names = frozenset(headers)
        self.size = sum(map(len, headers)) + sum(map(len, headers.values()))
        self._headers = headers

    def get(self, name: str) -> str | None:
        return self._headers.get(name)

    def completed(self, standard: Standard, own: Sequence[str]) -> str:
        more = standard.lacking(self.names, own)
        written = format_headers(self._headers)
        if not more:
            return written
        return f"{{{more}{',' if self._headers else ''}{written[1:]}"


_NO_SHAPE = _Shape(frozenset(), {}, "")
_NONE = WrittenHeaders("{}", _NO_SHAPE, ())


def headers_of(column: pa.Array) -> list[Headers]:
    """The headers of each row: JSON, a map, or NULL.

    :raises ConfigurationError: they are poison.
    """
    given = column.to_pylist()
    if not pa.types.is_string(column.type):
        return [_read(each) for each in given]
    made: list[Headers | None] = [None] * len(given)
    shapes = 0
    for first, text in enumerate(given):
        if made[first] is not None:
            continue
        shape = _Shape.of(text) if text and shapes < _SHAPES else None
        if shape is not None:
            shapes += 1
            rows = zip(itertools.count(first), *shape.found(column[first:]), strict=False)
            for row, its, values in rows:
                if its:
                    made[row] = WrittenHeaders(given[row], shape, values)
        made[first] = made[first] or _read(text)
    return made  # type: ignore[return-value] # no row is left out


def _read(given: Any) -> Headers:
    if given is None:
        return _NONE
    if isinstance(given, list):
        return ReadHeaders({name: value for name, value in given if value is not None})
    headers = parse_headers(given)
    if headers is None:
        raise ConfigurationError(
            f"The headers of a row are not a JSON object of strings: {str(given)[:_SHOWN]!r}; filter such rows, or "
            "give them headers of their own."
        )
    return ReadHeaders(headers)
