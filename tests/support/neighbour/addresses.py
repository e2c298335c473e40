"""Addresses as the transports read them, which is not as leniently as people write them."""

import re
from typing import NamedTuple

_NAME = r'"(?:[^"]|"")+"|[^".]+'
_QUOTED = re.compile(f"(?:(?P<schema>{_NAME})\\.)?(?P<table>{_NAME})")
_BRACKETS = re.compile(r"\[((?:[^\]]|\]\])*)\]")


class UnknownQueueError(Exception):
    """There is no such queue, or the text is no address."""


class Place(NamedTuple):
    """A table."""

    schema: str
    table: str


def of_postgresql(text: str) -> Place:
    """``"schema"."table"``. Without quotes a dot divides schema and table all the same."""
    found = _QUOTED.fullmatch(text)
    if found is None:
        raise UnknownQueueError(text)
    return Place(_unquoted(found["schema"] or "public"), _unquoted(found["table"]))


def of_sqlserver(text: str) -> Place:
    """``table@[schema]@[catalog]``; a catalog is taken for our own."""
    table, _, rest = text.partition("@")
    schema = rest.partition("@")[0] if not rest.startswith("[") else rest
    found = _BRACKETS.match(schema)
    return Place((found[1].replace("]]", "]") if found else schema) or "dbo", table)


def to_postgresql(place: Place) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in place)


def to_sqlserver(place: Place) -> str:
    return f"{place.table}@[{place.schema.replace(']', ']]')}]"


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
