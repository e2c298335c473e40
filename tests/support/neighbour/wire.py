"""One connection of a neighbour, the same on every engine; the statements are twins."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from tests.support.neighbour.addresses import Place


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A row that was taken, in a transaction that is still open."""

    id: UUID
    row_version: int
    expired: bool
    headers: str | None
    body: bytes | None


class Wire(ABC):
    """Within a transaction from :meth:`take` to :meth:`commit` or :meth:`rollback`;
    each other call commits by itself.
    """

    #: What the driver raises when the connection is gone.
    lost: ClassVar[tuple[type[Exception], ...]]
    #: Whether a NULL body ends the receive with an error, instead of being an empty one.
    refuses_null: ClassVar[bool]
    #: The driver's connection.
    connection: Any

    @abstractmethod
    def __init__(self, url: str, queue: Place) -> None:
        """Connect, as the endpoint that this queue belongs to."""

    @abstractmethod
    def look(self) -> int:
        """How many RowVersions there are from the first to the last free row; 0 if no row is free."""

    @abstractmethod
    def take(self) -> Taken | None:
        """Begin a transaction, and delete the next free row in it."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def insert(self, address: str, id: UUID, headers: str, body: bytes) -> None:
        """Send a row within the transaction.

        :raises UnknownQueueError: there is no such queue; the transaction is of no use any more.
        """

    @abstractmethod
    def place(self, address: str) -> Place:
        """Which table an address names.

        :raises UnknownQueueError: the text is no address.
        """

    @abstractmethod
    def subscribers(self, topics: Sequence[str]) -> list[str]:
        """The addresses that have subscribed to one of these, each once."""

    @abstractmethod
    def delay(self, headers: str, body: bytes, after: timedelta) -> None:
        """Put a message into the table of delayed ones, within the transaction."""

    @abstractmethod
    def move_due(self) -> tuple[int, float | None]:
        """Put what is due into the queue, and commit; how many they were,
        and in how many seconds the next one is due.
        """

    @abstractmethod
    def cut(self) -> None:
        """Break the connection as the death of its process does, from any thread."""

    @abstractmethod
    def close(self) -> None: ...
