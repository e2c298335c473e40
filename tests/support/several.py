"""Several queues that one stream reads, as one: filled, counted, and what a stream's sink has of each."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from tests.support.driver import Stream
from tests.support.engines import Engine, QueueTable


class Queues:
    """Queue tables by their names; to a stream they are what it reads."""

    def __init__(self, engine: Engine, *names: str) -> None:
        self.engine = engine
        self.tables = {name: engine.create_queue(name) for name in names}

    def __getitem__(self, name: str) -> QueueTable:
        return self.tables[name]

    def __iter__(self) -> Iterator[QueueTable]:
        return iter(self.tables.values())

    @property
    def listed(self) -> str:
        """The option ``queues``."""
        return json.dumps([table.address for table in self])

    @property
    def address(self) -> str:
        raise AssertionError("a stream over several queues has no option queue")

    def count(self) -> int:
        return sum(table.count() for table in self)


def by_queue(messages: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The row versions of messages in their order, by the table name of their queue."""
    found: dict[str, list[int]] = {}
    for message in messages:
        found.setdefault(message["Queue"].partition("@")[0], []).append(message["RowVersion"])
    return found


def ids_of(stream: Stream, name: str) -> list[UUID]:
    """The ids of what the stream's sink has of one queue, in ascending order."""
    return sorted(UUID(each["Id"]) for each in stream.messages() if each["Queue"].partition("@")[0] == name)
