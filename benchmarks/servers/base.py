"""What the benchmarks ask of a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

QUEUE = "q"
DESTINATION = "sent"


@dataclass(frozen=True)
class Jdbc:
    """How Spark's own JDBC source reaches the server."""

    url: str
    properties: Mapping[str, str]


class Server(ABC):
    """A server, and its tables ``QUEUE`` and ``DESTINATION``, which are new or replaced."""

    #: Maven's name of its JDBC driver.
    jdbc_driver: ClassVar[str]
    #: What rows are received in the order of.
    row_version: ClassVar[str]
    #: Pasts that a table can have: None is new, False is without what the server does by
    #: itself to forget them.
    pasts: ClassVar[Mapping[str, bool | None]]

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def jdbc(self) -> Jdbc: ...

    @abstractmethod
    def fill(self, count: int, table: str = QUEUE, *, new_table: bool = True) -> None:
        """Put messages of about 0.7 KB into a queue, in a new table with its statistics or as it is."""

    @abstractmethod
    def come_to_rest(self) -> None:
        """Write what is to be written, as what was written before must not be while others are measured."""

    @abstractmethod
    def come_and_go(self, count: int, table: str, *, forgotten: bool) -> None:
        """Let small rows come and go."""

    def forget(self) -> None:  # noqa: B027 -- nothing, if the server tells no client
        """Wait until the server has done by itself what it does about rows that are gone."""

    @abstractmethod
    def take_half(self, *, at_random: bool) -> None:
        """Delete every second row, or each with even chances."""

    @abstractmethod
    def create_destination(self) -> None:
        """The queue table that is sent to."""

    @abstractmethod
    def empty_destination(self, endpoint: str, *others: str) -> None:
        """Nothing was sent, to these other queues either, and the outbox remembers nothing."""

    @abstractmethod
    def fill_outbox(self, endpoint: str, count: int) -> None:
        """Let an outbox remember ids."""

    @abstractmethod
    def scans(self) -> int:
        """How often the queue or its indexes were ever scanned."""

    @abstractmethod
    def columns_to_append(self) -> Mapping[str, str]:
        """What Spark's JDBC append writes: columns of the table, by SQL expressions over Headers and Body."""

    @abstractmethod
    def delete_up_to(self, row_version: int) -> None:
        """Delete the rows of the queue up to a number, in one transaction."""

    @abstractmethod
    def one_delete(self) -> float:
        """Messages a second of one client that deletes all rows in one statement and fetches them."""

    def receivers_beside(self, table: str, connections: int) -> AbstractContextManager[list[float]]:
        """Receivers that take one row a transaction from a queue while the block runs:
        the messages of each second so far.
        """
        raise NotImplementedError("receivers beside a stream are measured on PostgreSQL only")

    def old_transaction(self) -> AbstractContextManager[None]:
        """A session that keeps all rows that others delete while the block runs."""
        raise NotImplementedError("an old transaction is measured on PostgreSQL only")

    @abstractmethod
    def one_row_receivers(self, connections: int, *, seconds: int) -> float:
        """Messages a second of receivers that take one row a transaction."""

    @abstractmethod
    def one_row_senders(self, connections: int, *, seconds: int) -> float:
        """Messages a second of senders that insert one row a transaction."""

    @abstractmethod
    def sending(self) -> AbstractContextManager[Callable[[], object]]:
        """What inserts one message into the queue and commits,
        over a connection that lasts as long as the block.
        """

    @abstractmethod
    def bulk_inserts(self) -> Mapping[str, Callable[[int], float]]:
        """The fastest that a client can send: by name, messages a second."""
