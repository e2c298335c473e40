"""Headers of a message on its way out: looked into, completed, and written as the .NET senders write them.

Most rows come from a queue, so their headers are written in that way already. Then nothing is parsed or written again:
what is missing is added at the end, which takes a fifth of the time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages import format_headers, parse_headers

# As .NET writes most headers: all ASCII, nothing between the strings, no escape but the slash's. Matched by RE2, a column
# at a time, which takes a sixth of Python's time; names have no escape at all, so that they can be compared as they are.
_NAME = r'"[\x20\x21\x23-\x2e\x30-\x5b\x5d-\x7e]*"'
_VALUE = r'"(?:[\x20\x21\x23-\x2e\x30-\x5b\x5d-\x7e]|\\/)*"'
_WRITTEN = rf"\A\{{(?:{_NAME}:{_VALUE}(?:,{_NAME}:{_VALUE})*)?\}}\z"
_SHOWN = 80


class Headers(ABC):
    """The headers of one row."""

    __slots__ = ()

    @abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abstractmethod
    def get(self, name: str) -> str | None:
        """One header, None where it is not there."""

    @property
    @abstractmethod
    def size(self) -> int:
        """About how many characters their JSON has."""

    @abstractmethod
    def completed(self, missing: Mapping[str, str]) -> str:
        """The JSON of all headers, and of those of ``missing`` that are not there.

        :param missing: by name, members as :func:`format_member` writes them.
        """


class WrittenHeaders(Headers):
    """Headers that :data:`_WRITTEN` matches: every quotation mark begins or ends a name or a value."""

    __slots__ = ("_text", "_values")

    def __init__(self, text: str) -> None:
        parts = text.split('"')
        self._text = text
        self._values = dict(zip(parts[1::4], parts[3::4], strict=True))

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> str | None:
        value = self._values.get(name)
        return value.replace("\\/", "/") if value is not None and "\\" in value else value

    @property
    def size(self) -> int:
        return len(self._text)

    def completed(self, missing: Mapping[str, str]) -> str:
        values = self._values
        more = [member for name, member in missing.items() if name not in values]
        if not more:
            return self._text
        return f"{self._text[:-1]}{',' if values else ''}{','.join(more)}}}"


class ReadHeaders(Headers):
    """Headers that were given as a map, or had to be read."""

    __slots__ = ("_headers",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __contains__(self, name: str) -> bool:
        return name in self._headers

    def get(self, name: str) -> str | None:
        return self._headers.get(name)

    @property
    def size(self) -> int:
        return sum(map(len, self._headers)) + sum(map(len, self._headers.values()))

    def completed(self, missing: Mapping[str, str]) -> str:
        more = [member for name, member in missing.items() if name not in self._headers]
        own = format_headers(self._headers)
        if not more:
            return own
        return f"{{{','.join(more)}{',' if self._headers else ''}{own[1:]}"


def headers_of(column: pa.Array) -> Iterator[Headers]:
    """The headers of each row: JSON, a map, or NULL.

    :raises ConfigurationError: they are poison.
    """
    given = column.to_pylist()
    if not pa.types.is_string(column.type):
        yield from map(_read, given)
        return
    written = pc.match_substring_regex(column, _WRITTEN).to_pylist()
    for text, as_it_is in zip(given, written, strict=True):
        yield WrittenHeaders(text) if as_it_is else _read(text)


def _read(given: Any) -> Headers:
    if isinstance(given, list):
        return ReadHeaders({name: value for name, value in given if value is not None})
    headers = parse_headers(given)
    if headers is None:
        raise ConfigurationError(
            f"The headers of a row are not a JSON object of strings: {str(given)[:_SHOWN]!r}; filter such rows, or "
            "give them headers of their own."
        )
    return ReadHeaders(headers)
