"""What people see of an error queue: its rows, what failed and why, and which rows stop ServiceControl.

Nothing here changes a queue or locks a row of it. What takes rows out works through them batch by batch
(:class:`ErrorQueue`), each batch in a transaction of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlqueue_spark.engines.connect import Connection, Target, connect
from sqlqueue_spark.errors import QueueError, TryAgain
from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.error_row import ErrorRow, Selection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.row_set import LOWEST, RowSet
from sqlqueue_spark.tables import queue_admin, queues
from sqlqueue_spark.tables.queue_admin import Envelope, Message, QueueAdmin
from sqlqueue_spark.tables.queues import InTransit, Queue

#: The error queue where nobody names one.
ERROR = "error"

#: Rows of one look. Headers of failed messages have stack traces, and one may have a megabyte.
_LOOK = 500
#: Most rows of one batch, and most bytes, unless a single row has more.
BATCH_ROWS, _BATCH_BYTES = 250, 32 << 20


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One row in full: as it stands in the table, and what is known of it."""

    message: Message
    row: ErrorRow


@dataclass(frozen=True, kw_only=True)
class ErrorQueue:
    """An error queue on an open connection, and which of its rows somebody means."""

    queue: Queue
    admin: QueueAdmin
    naming: Naming
    #: Whether a row is meant.
    meant: Callable[[ErrorRow], bool]
    #: The highest RowVersion that was there at the beginning; what comes later is left alone.
    up_to: int | None
    #: Is told how many more rows were looked at.
    looked: Callable[[int], object] = lambda _: None

    @property
    def connection(self) -> Connection:
        return self.queue.connection

    @property
    def name(self) -> str:
        return self.queue.table.name

    def rows(self) -> Iterator[ErrorRow]:
        """The rows that are meant, in RowVersion order."""
        if self.up_to is None:
            return
        after, more = LOWEST, True
        while more:
            with self.connection.transaction():
                found = self.admin.envelopes(after, self.up_to, _LOOK)
            more = len(found) == _LOOK
            self.looked(len(found))
            for each in found:
                after = each.row_version
                row = self.judged(each)
                if self.meant(row):
                    yield row

    def judged(self, row: Envelope) -> ErrorRow:
        """What is known of a row."""
        return ErrorRow.of(
            row.row_version,
            row.id,
            expired=row.expired,
            headers=row.headers,
            size=row.body_bytes or 0,
            unreadable_body=row.body_bytes is None and self.connection.dialect.null_body_stops,
        )

    def batches(self, most: int) -> Iterator[list[ErrorRow]]:
        """Those of the rows that have failed, in batches bounded in rows and bytes."""
        batch: list[ErrorRow] = []
        size = 0
        for row in self.rows():
            if not row.is_failure:
                continue
            if len(batch) == most or (batch and size + row.bytes > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(row)
            size += row.bytes
        if batch:
            yield batch

    def lock(self, batch: list[ErrorRow]) -> list[tuple[InTransit, ErrorRow]]:
        """Lock those of these rows that nobody holds, and read them whole.

        Whoever has emptied the table since may have filled it again, so the rows are judged once more.
        """
        found = self.queue.lock_in_transit([row.row_version for row in batch])
        locked = [(each, self.judged(_without_body(each))) for each in found]
        return [(each, row) for each, row in locked if row.is_failure and self.meant(row)]

    def delete(self, rows: list[InTransit]) -> None:
        """Delete rows that this transaction has locked.

        :raises TryAgain: some are gone all the same, so that nothing of the batch may be committed.
        """
        numbers = RowSet.of(sorted(row.row_version for row in rows))
        if rows and (deleted := self.queue.delete(numbers)) != len(rows):
            raise TryAgain(
                f"Of {len(rows)} locked rows of {self.name} only {deleted} were there to delete; nothing was done with them. Look for a "
                "trigger or a rule on the table, and try again."
            )


@contextlib.contextmanager
def opened(
    options: ConnectionOptions,
    queue: str,
    selection: Selection,
    *,
    looked: Callable[[int], object] = lambda _: None,
) -> Iterator[ErrorQueue]:
    """An error queue on a connection of its own.

    :param looked: is told how many more rows were looked at.
    :raises QueueError: there is no such table.
    """
    target = Target.of(options)
    naming = options.naming(target.dialect)
    with connect(target) as connection:
        with connection.transaction():
            found = queues.get(connection, queue, naming)
            meant = selection.test(naming, queue_admin.now(connection))
            up_to = found.highest()
        yield ErrorQueue(
            queue=found,
            admin=QueueAdmin(connection, found.table),
            naming=naming,
            meant=meant,
            up_to=up_to,
            looked=looked,
        )


def look(
    options: ConnectionOptions,
    queue: str,
    selection: Selection,
    *,
    looked: Callable[[int], object] = lambda _: None,
) -> Iterator[ErrorRow]:
    """The rows of an error queue that are meant, in RowVersion order, also those that are no failures.

    :param looked: is told how many more rows were looked at.
    """
    with opened(options, queue, selection, looked=looked) as error_queue:
        yield from error_queue.rows()


def show(
    options: ConnectionOptions, queue: str, selection: Selection, *, row_version: int | None = None
) -> list[Shown]:
    """The rows that are meant, in full.

    :param row_version: the row with this RowVersion.
    :raises QueueError: there is none.
    """
    with opened(options, queue, selection) as error_queue:
        wanted = [row.row_version for row in error_queue.rows()] if row_version is None else [row_version]
        with error_queue.connection.transaction():
            found = [message for each in wanted if (message := error_queue.admin.message(each)) is not None]
        if not found:
            raise QueueError(
                f"There is no such message in {error_queue.name}, or somebody is just taking it; see which are there with: "
                "sqlqueue errors list."
            )
        return [
            Shown(message=each, row=error_queue.judged(_without_body(each, expired=each.expired)))
            for each in found
        ]


def _without_body(row: InTransit | Message, *, expired: bool = False) -> Envelope:
    size = None if row.body is None else len(row.body)
    return Envelope(row.row_version, row.id, expired, row.headers, size)
