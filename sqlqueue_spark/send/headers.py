"""The headers of a message on its way out: looked into, completed, and written as the .NET senders write them.

Most rows come from a queue, so their headers are written in that way already. Then nothing is parsed or written again:
what is missing is added at the end, which takes a third of the time.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined] # public, missing in the stubs
from typing import Any

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages import format_headers, member_begin, parse_headers

# Only ASCII, so that one look-up in a table of 256 bits decides on each character; the rest goes the other way.
_PLAIN = r"[\x20\x21\x23-\x2e\x30-\x5b\x5d-\x7e]*+"
_TEXT = rf'"{_PLAIN}(?:\\["\\/bfnrt]{_PLAIN})*+"'
_WRITTEN = re.compile(rf"\{{(?:{_TEXT}:{_TEXT}(?:,(?=\")|(?=\}})))*+\}}")
_SHOWN = 80


class Headers(ABC):
    """The headers of one row."""

    __slots__ = ()

    @abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abstractmethod
    def get(self, name: str) -> str | None:
        """One header, None where it is not there."""

    @abstractmethod
    def completed(self, missing: Mapping[str, str]) -> str:
        """The JSON of all headers, and of those of ``missing`` that are not there."""


class _Begins(dict[str, str]):
    """How a header with this name begins in the JSON; in a value its quotation marks would be escaped."""

    def __missing__(self, name: str) -> str:
        begin = self[name] = member_begin(name) + '"'
        return begin


_BEGINS = _Begins()


class WrittenHeaders(Headers):
    """Headers that are JSON as .NET writes it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __contains__(self, name: str) -> bool:
        return _BEGINS[name] in self._text

    def get(self, name: str) -> str | None:
        begin = _BEGINS[name]
        at = self._text.find(begin)
        if at < 0:
            return None
        start = at + len(begin)
        value = self._text[start : self._text.index('"', start)]
        return value if "\\" not in value else str(scanstring(self._text, start)[0])

    def completed(self, missing: Mapping[str, str]) -> str:
        text = self._text
        more = {name: value for name, value in missing.items() if _BEGINS[name] not in text}
        if not more:
            return text
        added = format_headers(more)
        return added if text == "{}" else f"{text[:-1]},{added[1:]}"


class ReadHeaders(Headers):
    """Headers that were given as a map, or had to be read."""

    __slots__ = ("_headers",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __contains__(self, name: str) -> bool:
        return name in self._headers

    def get(self, name: str) -> str | None:
        return self._headers.get(name)

    def completed(self, missing: Mapping[str, str]) -> str:
        return format_headers({**missing, **self._headers})


def headers_of(given: Any) -> Headers:
    """The headers of a row as Arrow hands them over: JSON, a map's pairs, or None.

    :raises ConfigurationError: they are poison.
    """
    if isinstance(given, list):
        return ReadHeaders({name: value for name, value in given if value is not None})
    if given is not None and _WRITTEN.fullmatch(given):
        return WrittenHeaders(given)
    headers = parse_headers(given)
    if headers is None:
        raise ConfigurationError(
            f"The headers of a row are not a JSON object of strings: {str(given)[:_SHOWN]!r}; filter such rows, or "
            "give them headers of their own."
        )
    return ReadHeaders(headers)
