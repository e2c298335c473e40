"""What every dialect of a full engine answers beside: how values are bound, what its errors mean."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.row_set import RowSet

#: What a claim locked, column by column, as there are millions of rows: RowVersion, whether it has expired, and the
#: bytes of headers and body.
ClaimedColumns = tuple[Sequence[int], Sequence[bool], Sequence[int]]


class Kind(Enum):
    """What a driver's error means to the caller."""

    CONNECTION_LOST = auto()
    NOT_REACHED = auto()
    GAVE_WAY = auto()
    LOCK_TIMEOUT = auto()
    TIMED_OUT = auto()
    LOGIN_REFUSED = auto()
    TOKEN_REFUSED = auto()
    NOT_TRUSTED = auto()
    SHARED_SESSION = auto()
    WRONG_URL = auto()
    NO_DATABASE = auto()
    NO_TABLE = auto()
    WRONG_SHAPE = auto()
    NO_RIGHT = auto()
    EXISTS_ALREADY = auto()
    DUPLICATE = auto()
    OTHER = auto()


class DriverError(NamedTuple):
    """What a driver says of an error; ``number`` is the engine's own, where it has one."""

    sqlstate: str | None
    number: int | None
    message: str


class Dialect(Database):
    """One full engine."""

    default_schema: ClassVar[str]
    #: Most rows that one statement locks or deletes.
    chunk: ClassVar[int]
    #: Whether plain reads go on seeing rows that an open transaction has deleted. Then a claim deletes its rows at once,
    #: as the one-row receivers do, and settling it is only the commit.
    reads_see_open_deletes: ClassVar[bool] = False
    #: Whether a statement that takes thousands of row locks may be given a lock on the whole table instead.
    escalates: ClassVar[bool] = True
    #: Whether what ``lock_timeout`` sets is undone with the transaction.
    lock_timeout_ends_with_transaction: ClassVar[bool] = False
    #: Bytes of headers and body together up to which a row is small: those are read in blocks where it is known of a whole
    #: range that they are. None where size makes no difference to a reader.
    small_row: ClassVar[int | None] = None
    #: The columns that every queue table has, with the types that will do.
    queue_columns: ClassVar[Mapping[str, Sequence[str]]]
    #: The column that numbers a queue's rows, and the one by which expired rows are found in an index of their own, where the
    #: classic table has one.
    row_version: ClassVar[str]
    expires_with_index: ClassVar[str | None] = None
    #: The longest name of a queue table, and what is counted.
    longest_queue: ClassVar[tuple[int, str]]
    #: Whether a table without a clustered index is kept otherwise, and does not give back the room of deleted rows.
    knows_heaps: ClassVar[bool] = False
    #: Whether one connection reaches other databases of its server.
    reaches_other_databases: ClassVar[bool] = False
    #: What a Microsoft Entra token must be for to be a login here.
    entra_scope: ClassVar[str]
    #: Whether the transport's ``"schema"."table"`` is an address here.
    quoted_addresses: ClassVar[bool] = False

    @abstractmethod
    def speaks(self, url: str) -> bool:
        """Whether a URL or connection string is one of this engine's."""

    @abstractmethod
    def row_version_index(self, table: str) -> str:
        """What the index that a queue's rows are found by is called in a new table of this name."""

    @abstractmethod
    def bind(self, runs: RowSet) -> tuple[object, ...]:
        """A set of RowVersions as the parameters of ``lock``, ``delete`` and ``ids``."""

    def claimed(self, rows: Sequence[tuple[Any, ...]]) -> ClaimedColumns | None:
        """The answer of ``claim`` as columns; None when nothing was locked."""
        return tuple(zip(*rows, strict=True)) if rows else None  # type: ignore[return-value] # three columns

    @abstractmethod
    def bind_messages(self, messages: pa.RecordBatch) -> tuple[object, ...]:
        """Messages (:data:`OUTGOING`) as the parameters of ``insert``; their times to be received are reckoned already."""

    @abstractmethod
    def bind_staged(self, task: str, messages: Mapping[str, pa.RecordBatch]) -> tuple[object, ...]:
        """Messages as the parameters of ``stage_insert``, by their destinations' names."""

    @abstractmethod
    def kind(self, error: DriverError) -> Kind:
        """What an error means."""

    def with_numbers(self, statement: str, numbers: Sequence[int]) -> str:
        """A statement with whole numbers in the place of its ``?``, where an engine lets nothing be bound."""
        left = iter(numbers)
        parts = statement.split('"')  # a ``?`` between double quotes belongs to a name
        for index in range(0, len(parts), 2):
            while "?" in parts[index]:
                parts[index] = parts[index].replace("?", str(int(next(left))), 1)
        return '"'.join(parts)
