"""What a test may do to a database behind the back of the code under test, the same for every engine."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from tests.support.messages import Row


class Session(ABC):
    """Another connection with one open transaction, which is rolled back at the end of the block."""

    @abstractmethod
    def insert(self, count: int, *, start: int = 0, size: int = 64) -> range: ...

    @abstractmethod
    def take(self, row_version: int | None = None) -> Row | None:
        """Delete and return the next free row, as a one-row receiver does, or the row with this number."""

    @abstractmethod
    def lock(self, *row_versions: int) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...


class QueueTable(ABC):
    """One queue table. ``address`` names it to the code under test; row versions begin at 1."""

    name: str
    schema: str
    address: str

    @abstractmethod
    def insert(self, count: int, *, start: int = 0, size: int = 64, expires: datetime | None = None) -> range:
        """Commit ``count`` messages, numbered from ``start``,
        with bodies of ``size`` bytes; return the numbers.
        """

    @abstractmethod
    def insert_row(
        self, *, id: UUID, headers: str | None, body: bytes | None, expires: datetime | None = None
    ) -> int:
        """Commit one row with exactly these values; return its row version."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """All rows that are committed, in the order of row versions."""

    @abstractmethod
    def session(self) -> AbstractContextManager[Session]:
        """Open a transaction of another session."""

    @abstractmethod
    def locked(self, *row_versions: int) -> AbstractContextManager[None]:
        """Within the block another session holds these rows."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Run and commit a statement in which ``{table}`` stands for this table."""

    @abstractmethod
    def count(self) -> int: ...

    def ids(self) -> list[UUID]:
        return [row.id for row in self.rows()]

    def row_versions(self) -> list[int]:
        return [row.row_version for row in self.rows()]

    def take(self, row_version: int | None = None) -> Row | None:
        """Take one row and commit."""
        with self.session() as session:
            row = session.take(row_version)
            session.commit()
            return row


class Engine(ABC):
    """One database, new and empty. ``url`` is what the code under test connects with."""

    name: ClassVar[str]
    default_schema: ClassVar[str]
    url: str

    @abstractmethod
    def create_queue(self, name: str = "orders", *, schema: str | None = None) -> QueueTable:
        """Create the classic table, and the schema if it is missing."""

    @abstractmethod
    def queue(self, name: str = "orders", *, schema: str | None = None) -> QueueTable:
        """A table that other code has created or will create."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Run and commit one statement."""

    @abstractmethod
    def fetch(self, statement: str) -> Sequence[tuple[object, ...]]: ...

    def bytes_of(self, headers: str) -> int:
        """How many bytes a limit of bytes counts for headers on this engine."""
        return len(headers.encode())

    @abstractmethod
    def cut_connections(self) -> int:
        """End every other session of this database, as a broken network does; return how many."""


def with_catalog(engine: Engine, name: str) -> str:
    """The address of a queue with its schema and with the database in which it lies."""
    database = "current_database()" if engine.name == "postgresql" else "DB_NAME()"
    ((catalog,),) = engine.fetch(f"SELECT {database}")
    return f"{address_of(name, engine.default_schema)}@[{catalog}]"


def full_address(engine: Engine, table: str) -> str:
    """A table's address as the engine's transport writes it."""
    if engine.name == "postgresql":
        return '"public"."' + table.replace('"', '""') + '"'
    return with_catalog(engine, table)


def without_place(said: str) -> str:
    """A sentence in which a database of a test, whose name and port differ each time, is that of Home."""
    return re.sub(r"the database '\w+' at [\w.]+:\d+", "the database of Home", said)


def address_of(name: str, schema: str) -> str:
    return f"{name}@[{schema.replace(']', ']]')}]"
