"""Administers a queue table: tells how it is made, looks into it and empties it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.header_json import time_sent
from sqlqueue_spark.messages.message import since
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.row_set import HIGHEST, LOWEST, bounded
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.queues import Queue

#: Most bytes of rows whose headers are read together; a larger row is read alone.
_PAGE_BYTES = 32 << 20
#: The kinds of indexes that can be sought in order.
_ORDERED = ("clustered", "nonclustered", "btree")


class Index(NamedTuple):
    """An index with its key columns in their order; ``filter`` is the condition of a partial index."""

    name: str
    columns: tuple[str, ...]
    unique: bool
    kind: str
    filter: str | None

    def leads_with(self, column: str) -> bool:
        """Whether rows are found by this column."""
        return self.kind in _ORDERED and [each.lower() for each in self.columns[:1]] == [column.lower()]


class Space(NamedTuple):
    """How full a table is, by estimates; ``idle_seconds`` counts since its last vacuum, None without one."""

    pages: int
    live: int
    dead: int
    idle_seconds: int | None


class Numbers(NamedTuple):
    """What gives the rows their numbers: on PostgreSQL a sequence. ``last`` is None where it is not known."""

    source: Table
    last: int | None
    highest: int


class StoppingRow(NamedTuple):
    """A row that stops the .NET endpoints of its queue: without a body, or with the JSON ``null`` as headers.

    ``behind`` are the headers of the next row, None where there is none; ``now`` is the database's clock.
    """

    row_version: int
    id: str
    bodyless: bool
    headers: str | None
    behind: str | None
    now: datetime


class Length(NamedTuple):
    """How much a queue holds. ``oldest_sent`` is None if it is empty, or the oldest row does not tell."""

    queue: str
    rows: int
    expired: int
    bytes: int
    oldest_sent: datetime | None
    oldest_age: timedelta | None


class Envelope(NamedTuple):
    """A row without its body; ``body_bytes`` is None where the body is NULL."""

    row_version: int
    id: str
    expired: bool
    headers: str | None
    body_bytes: int | None


@dataclass(frozen=True)
class Message:
    """One row as it stands in the table, except that its Id is text and its times are known to be UTC."""

    id: str
    correlation_id: str | None
    reply_to_address: str | None
    recoverable: bool | None
    expires: datetime | None
    headers: str | None
    body: bytes | None
    row_version: int
    expired: bool


class QueueAdmin(Queue):
    """A queue table on an open connection, for administration and sending; it asks once how it is made."""

    def __init__(
        self, connection: Connection, table: QueueTable, options: ConnectionOptions | None = None
    ) -> None:
        """:param options: say which strangers' code may run; None where the table is used as it is."""
        super().__init__(connection, table)
        self._allowed = None if options is None else AllowedDestinations(options).widened()

    @contextlib.contextmanager
    def changing(self, *, deleting: bool = False) -> Iterator[None]:
        """A transaction that inserts rows, or deletes some, where no code of strangers runs with it."""
        with self.connection.transaction(), contextlib.ExitStack() as guarded:
            if self._allowed is not None:
                into = self._allowed.into(self.connection, self.table, shaped=False, deleting=deleting)
                guarded.enter_context(into)
                self._guarded_since = self.connection.freed
            yield

    def _guard(self) -> None:
        if self._allowed is None or self._guarded_since == self.connection.freed:
            return
        self._allowed.check(self.connection, self.table)
        self._guarded_since = self.connection.freed

    @cached_property
    def indexes(self) -> list[Index]:
        rows = self._execute("indexes")
        return [
            Index(name, tuple(column or "(expression)" for _, column, *_ in keys), bool(unique), kind, where)
            for (name, unique, kind, where), keys in groupby(rows, lambda row: (row[0], *row[2:]))
            if name is not None
        ]

    def new_index_name(self, wanted: str) -> str:
        """A name for a new index that nothing else has: ``wanted``, or that with a number."""
        taken = {name.lower() for (name,) in self._execute("index_names")}
        numbered = (wanted, *(f"{wanted}_{number}" for number in range(2, len(taken) + 3)))
        return next(name for name in numbered if name.lower() not in taken)

    def space(self) -> Space | None:
        """How full the table is; None where the engine gives back the room of deleted rows by itself."""
        rows = self._execute("space")
        return Space(*rows[0]) if rows else None

    @cached_property
    def numbers(self) -> Numbers | None:
        """What gives the rows their numbers; None when nothing does."""
        if not (rows := self._execute("numbers")):
            return None
        schema, name, last, highest = rows[0]
        return Numbers(Table(table=name, schema=schema, catalog=self.table.table.catalog), last, highest)

    @cached_property
    def settings(self) -> list[tuple[str, str]]:
        """How the table is set up, as far as it matters to a queue: names and values."""
        return [(name, value) for name, value in self._execute("settings")]

    def stopping_row(self) -> StoppingRow | None:
        """The first row that stops .NET endpoints; None where the head of the queue has none."""
        if not (rows := self._execute("stopping_row")):
            return None
        row_version, row_id, bodyless, headers, behind, now = rows[0]
        return StoppingRow(row_version, row_id, bodyless, headers, behind, now.replace(tzinfo=UTC))

    @property
    def seeks(self) -> bool:
        """Whether rows are read in RowVersion order without reading the whole table each time.

        An engine that needs no index for it has no statements for a table without one.
        """
        return not self.connection.dialect.statement("peek_by_scan") or self.finds_row_versions

    @property
    def finds_row_versions(self) -> bool:
        """Whether an index finds each row by its RowVersion."""
        column = self.connection.dialect.row_version
        return any(index.leads_with(column) and index.filter is None for index in self.indexes)

    def length(self) -> Length:
        """What stands in the queue; waits for no lock."""
        rows, expired, size, now = self._execute("length")[0]
        oldest = self.envelopes(LOWEST, HIGHEST, 1) if self.seeks else self.messages(LOWEST, 1)
        sent = time_sent(oldest[0].headers) if rows and oldest else None
        return Length(self.name, rows, expired, size, sent, since(sent, now.replace(tzinfo=UTC)))

    def count_up_to(self, most: int) -> int:
        """How many rows stand in the queue, counted no further than to ``most``; waits for no lock."""
        return int(self._execute("count_up_to", most=most)[0][0])

    def messages(self, after: int, count: int) -> list[Message]:
        """The next rows above ``after``, in RowVersion order; this locks none of them.

        :param count: at most :attr:`Database.written`.
        """
        way = "peek" if self.seeks else "peek_by_scan"
        rows = self._execute(way, after=after, count=count)
        return [replace(Message(*row), expires=row[4] and row[4].replace(tzinfo=UTC)) for row in rows]

    def message(self, row_version: int) -> Message | None:
        """The row with this RowVersion; None where it is not there, or is just being taken."""
        found = self.messages(max(LOWEST, row_version - 1), 1)
        return found[0] if found and found[0].row_version == row_version else None

    def envelopes(self, after: int, up_to: int, count: int) -> list[Envelope]:
        """The next rows above ``after`` without their bodies, in RowVersion order; this locks none of them.

        :param count: at most :attr:`Database.written`.
        """
        rows = self._execute("peek_headers", after=after, up_to=up_to, count=count)
        return [
            Envelope(row_version, str(row_id).lower(), bool(expired), headers, size)
            for row_version, row_id, expired, headers, size in rows
        ]

    def fitting(self, after: int, up_to: int, count: int) -> int:
        """How many of the next rows are read together, at most ``count``: long headers fill the memory."""
        found = self.look(after, up_to, count)
        sizes = () if found is None else found[2]
        fit = next(iter(bounded(sizes, count, _PAGE_BYTES)), 0)
        return count if fit == len(sizes) else fit

    def purge(self, after: int, up_to: int, *, expired: bool) -> list[int]:
        """Delete the next rows (or next expired rows) above ``after``, stepping over rows that others hold.

        :returns: the RowVersions of at most :attr:`Database.written` rows; fewer when there are no more.
        """
        statement = "purge_expired" if expired else "purge"
        count = self.connection.dialect.written
        found = self._execute(statement, "deleting from", after=after, up_to=up_to, count=count)
        return sorted(row_version for (row_version,) in found)
