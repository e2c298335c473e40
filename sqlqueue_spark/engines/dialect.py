"""What the dialect of a full engine adds to :class:`Database`: how values are bound, what errors mean."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.engines.driver_errors import DriverError, Kind
from sqlqueue_spark.engines.statements import Parameters
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.row_set import RowSet

#: What a claim locked, as three columns, because there may be millions of rows: RowVersion, whether the row
#: has expired, and the bytes of its headers and body. Then the RowVersions of the rows that may be messages
#: in transit: a few, or none.
ClaimedColumns = tuple[Sequence[int], Sequence[bool], Sequence[int], Sequence[int]]
#: Many rows as a connection of the engine loads them: the parameters of the statement, or the stream of bytes
#: that it reads.
Load = Mapping[str, object] | Sequence[bytes | memoryview]


class Dialect(Database, ABC):
    """One full engine: it keeps queues, and not only outboxes."""

    default_schema: ClassVar[str]
    #: The extra of this package that names its drivers.
    extra: ClassVar[str]
    #: Most rows that one statement locks or deletes.
    chunk: ClassVar[int]
    #: Whether a statement that takes thousands of row locks may be given a lock on the whole table instead.
    escalates: ClassVar[bool] = True
    #: Whether the end of the transaction undoes what ``lock_timeout`` sets.
    lock_timeout_ends_with_transaction: ClassVar[bool] = False
    #: The columns that every queue table has, each with the types that it may have.
    queue_columns: ClassVar[Mapping[str, Sequence[str]]]
    #: The columns of a message that an insert fills where the table has them.
    message_columns: ClassVar[Sequence[str]]
    #: The column that numbers a queue's rows.
    row_version: ClassVar[str]
    #: How long a queue table's name may be, and the unit in which it counts.
    longest_queue: ClassVar[tuple[int, str]]
    #: Whether a login does not see a table to which it has no right.
    hides_tables: ClassVar[bool] = False
    #: Whether a .NET receiver stops at a body that is NULL. Else it reads it as an empty one.
    null_body_stops: ClassVar[bool] = False
    #: Whether a text may hold the character NUL.
    keeps_nul: ClassVar[bool] = True
    #: Whether every login is told which sessions look for a row of a queue.
    tells_receivers: ClassVar[bool] = False
    #: Whether one connection reaches other databases of its server.
    reaches_other_databases: ClassVar[bool] = False
    #: The scope that a Microsoft Entra token must have to be a login here.
    entra_scope: ClassVar[str]
    #: The value for ``due`` of a delayed message on a stage: its ``expires``, in the engine's words.
    staged_due: ClassVar[str]
    #: Whether the transport's ``"schema"."table"`` is an address here.
    quoted_addresses: ClassVar[bool] = False
    #: Whether names are compared without the case of letters, as by most collations of SQL Server.
    ignores_case: ClassVar[bool] = False

    @abstractmethod
    def speaks(self, url: str) -> bool:
        """Whether a URL or connection string is one of this engine's."""

    def address(self, table: Table) -> str:
        """A table's address as people write it, and as it stands in the column ``Queue``."""
        return table.to_address(quoted=self.quoted_addresses)

    def has_queue_columns(self, columns: Iterable[str]) -> bool:
        """Whether a table with these columns is a queue's; it may have others, also one named ``due``."""
        return {name.lower() for name in columns} >= {name.lower() for name in self.queue_columns}

    @abstractmethod
    def row_version_index(self, table: str) -> str:
        """The name of the index that finds a queue's rows, in a new table of this name."""

    @abstractmethod
    def bind(self, runs: RowSet) -> Parameters:
        """A set of RowVersions as the parameters of ``claim_runs``, ``lock``, ``delete`` and ``ids``."""

    def claimed(self, rows: Sequence[tuple[Any, ...]]) -> ClaimedColumns | None:
        """The answer of ``claim`` as columns; None when nothing was locked."""
        if not rows:
            return None
        row_versions, expired, sizes, in_transit = zip(*rows, strict=True)
        return row_versions, expired, sizes, [*itertools.compress(row_versions, in_transit)]

    @abstractmethod
    def bind_messages(self, messages: "pa.RecordBatch") -> Load:
        """Messages (:data:`OUTGOING`) as ``insert`` loads them.

        Times to be received are times of expiry by now (:func:`expiring`).
        """

    def bind_columns(self, messages: "pa.RecordBatch") -> Parameters:
        """Messages as ``insert_by_policy`` takes them. An engine without that statement has no use for it."""
        raise NotImplementedError

    @abstractmethod
    def bind_staged(self, task: str, messages: "Mapping[str, pa.RecordBatch]") -> tuple[int, Load]:
        """Messages as ``stage_insert`` loads them, behind the number of rows that they make.

        They are given by their destinations' names.
        """

    @abstractmethod
    def bind_due(
        self, rows: Sequence[str], ids: Sequence[str], kept: Sequence[int], rests: Sequence[str]
    ) -> Parameters:
        """Delayed messages as ``delayed_headers`` and ``delayed_send`` find them.

        :param ids: the Ids of their new rows.
        :param kept: how many characters of their headers they keep, with ``rests`` behind these.
        """

    @abstractmethod
    def kind(self, error: DriverError) -> Kind:
        """What an error means."""
