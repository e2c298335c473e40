"""What a batch over several queues is, and how the shares of the queues become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from sqlqueue_spark.errors import SqlQueueError, TooMuch
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.receive.found import Batch, Find, Found
from sqlqueue_spark.receive.joint_session import JointSession
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.row_set import HIGHEST


class Share(Found, Protocol):
    """What a batch has of one queue."""

    @property
    def name(self) -> str:
        """The canonical name of the queue."""


class Joint(Batch, Protocol):
    """A batch over several queues."""

    @property
    def parts(self) -> Sequence[Share]:
        """What it has of each."""


P = TypeVar("P", bound=Share)
J = TypeVar("J", bound=Joint)


class Gathering(ABC, Generic[P, J]):
    """How the shares of several queues become one batch."""

    @abstractmethod
    def find(self, table: Table) -> Find[P]:
        """How to look at one queue; asked once for each."""

    @abstractmethod
    def gather(self, session: JointSession, start: Offset | None, turn: Callable[[], list[P]]) -> J | None:
        """Make a batch of what a turn finds; None where it finds nothing.

        :param turn: looks at each queue in turn; it may be called again after the transaction was rolled back.
        :raises QueueFails: something is wrong with one queue; the batch can be made without it.
        """

    @property
    def most_rows(self) -> int:
        """The most rows of a batch that the server can bear."""
        return HIGHEST

    def too_large(self, rows: int, error: TooMuch) -> None:
        """Note that a batch of up to so many rows was too large for the server."""


class QueueFails(Exception):
    """Something is wrong with one queue, and not with the others."""

    def __init__(self, name: str, cause: SqlQueueError) -> None:
        super().__init__(str(cause))
        self.name = name
        self.cause = cause
