"""A connection of a stream, and the queues that the stream reads on it: one, or several."""

from __future__ import annotations

from typing import Protocol

from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.tables.queues import Queue


class Session(Protocol):
    """What a stream has on one connection: a :class:`Queue`, or the queues of a stream over several."""

    connection: Connection

    @property
    def name(self) -> str:
        """What is received from, for logs and errors."""

    def named(self, name: str) -> Queue | None:
        """The queue of this canonical name; None where there is none."""

    def reads(self, name: str) -> bool:
        """Whether new rows of the queue of this canonical name are received."""
