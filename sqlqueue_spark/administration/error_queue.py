"""Reads an error queue: which messages failed, where and why, and which rows stop ServiceControl.

:func:`look` and :func:`show` lock nothing and change nothing. Retry and discard take rows out by
:meth:`ErrorQueue.take_out`.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import Progress, queue_tables, untold
from sqlqueue_spark.administration.queue_peek import QueueLook
from sqlqueue_spark.errors import QueueError, TryAgain
from sqlqueue_spark.messages.error_row import ErrorRow, Selection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet, portions
from sqlqueue_spark.tables import database_facts
from sqlqueue_spark.tables.queue_admin import Envelope, Message, QueueAdmin
from sqlqueue_spark.tables.queues import InTransit

#: Maximum rows and bytes of one batch. A larger row is a batch of its own.
_BATCH_ROWS, _BATCH_BYTES = 250, 32 << 20
_BATCHES_A_SECOND = 10


@dataclass(frozen=True, kw_only=True)
class ErrorQueue:
    """An error queue on an open connection, and the selection of its rows."""

    options: ConnectionOptions
    admin: QueueAdmin
    #: Whether a row is selected.
    meant: Callable[[ErrorRow], bool]
    #: The highest RowVersion at the beginning, and how many rows there were. Later rows are left alone; on
    #: PostgreSQL a sender may choose its number, so that rows that fail again come below it.
    up_to: int
    count: int
    looked: Progress

    @property
    def listing(self) -> str:
        return f"sqlqueue errors list {for_shell(self.admin.name)}"

    def rows(self, ids: Iterable[str] = ()) -> Iterator[ErrorRow]:
        """Yield the selected rows in RowVersion order; then raise QueueError if none has one of these ids."""
        missing, left = set(ids), self.count
        pages = QueueLook(self.admin).pages(LOWEST, self.up_to, lambda: left)
        for page in pages:
            left -= len(page.rows)
            self.looked(len(page.rows))
            rows = [*map(self.judged, page.rows)]
            missing.difference_update(row.message_id for row in rows)
            yield from filter(self.meant, rows)
        if missing:
            raise QueueError(
                f"No message in {self.admin.name} has the id {' or '.join(map(repr, sorted(missing)))}, or "
                f"another session is taking it; see which are there with: {self.listing}."
            )

    def judged(self, row: Envelope | InTransit | Message) -> ErrorRow:
        body = row.body_bytes if isinstance(row, Envelope) else row.body
        size = len(body) if isinstance(body, bytes) else body
        return ErrorRow.of(
            row.row_version,
            row.id,
            expired=not isinstance(row, InTransit) and row.expired,
            headers=row.headers,
            size=size or 0,
            unreadable_body=size is None and self.admin.connection.dialect.null_body_stops,
        )

    def take_out(
        self,
        put: Callable[[list[tuple[InTransit, ErrorRow]]], list[InTransit]],
        progress: Progress,
        rate: int | None = None,
        *,
        stopping: bool = False,
    ) -> tuple[int, int]:
        """Lock the selected failures that are free, put them elsewhere, delete them: a transaction a batch.

        :param put: puts locked rows elsewhere; it returns those that are to be deleted.
        :param rate: rows a second, steadily; None is as fast as possible.
        :param stopping: take other rows too that stop ServiceControl.
        :returns: how many rows it has deleted, and how many others held, or have taken meanwhile.
        :raises TryAgain: some rows were gone although they were locked, so their batch is not committed.
        """
        most = _BATCH_ROWS if rate is None else max(1, min(_BATCH_ROWS, rate // _BATCHES_A_SECOND))
        began, count, held = time.monotonic(), 0, 0
        wanted = (row for row in self.rows() if row.goes(stopping=stopping))
        for batch in portions(wanted, lambda row: row.bytes, most, _BATCH_BYTES):
            if rate is not None:
                time.sleep(max(0.0, began + count / rate - time.monotonic()))
            with self.admin.changing(deleting=True):
                found = self.admin.lock_in_transit([row.row_version for row in batch])
                # The table may have been emptied and filled again since the look.
                read = ((each, self.judged(each)) for each in found)
                locked = [
                    (each, row) for each, row in read if row.goes(stopping=stopping) and self.meant(row)
                ]
                fail_points.step(fail_points.FAILED_LOCKED)
                gone = put(locked)
                fail_points.step(fail_points.FAILED_PUT)
                numbers = RowSet.of(row.row_version for row in gone)
                if gone and (deleted := self.admin.delete(numbers)) != len(gone):
                    raise TryAgain(
                        f"Of {len(gone)} locked rows of {self.admin.name} only {deleted} were there to "
                        "delete; nothing was done with them. Look for a trigger or a rule on the table, and "
                        "try again."
                    )
                fail_points.step(fail_points.FAILED_DELETED)
            fail_points.step(fail_points.FAILED_COMMITTED)
            count += len(gone)
            held += len(batch) - len(locked)
            progress(len(gone))
        return count, held


@contextlib.contextmanager
def opened(
    options: ConnectionOptions, queue: str, selection: Selection, *, looked: Progress = untold
) -> Iterator[ErrorQueue]:
    """:raises QueueError: the table does not exist."""
    with queue_tables.opened(options, queue) as admin:
        naming = options.naming(admin.connection.dialect)
        with admin.connection.transaction():
            meant = partial(selection.fits, naming, database_facts.now(admin.connection))
            ends = {"up_to": admin.highest(), "count": admin.count_up_to(HIGHEST)}
        yield ErrorQueue(options=options, admin=admin, meant=meant, looked=looked, **ends)


def look(
    options: ConnectionOptions, queue: str, selection: Selection, *, looked: Progress = untold
) -> Iterator[ErrorRow]:
    """Yield the selected rows in RowVersion order, also those that are no failures."""
    with opened(options, queue, selection, looked=looked) as error_queue:
        yield from error_queue.rows()


def show(
    options: ConnectionOptions, queue: str, selection: Selection, *, row_version: int | None = None
) -> Iterator[tuple[Message, ErrorRow]]:
    """Yield each selected row in full, and what its headers tell. Without any, raise QueueError."""
    with opened(options, queue, selection) as error_queue:
        rows = error_queue.rows(selection.message_ids)
        wanted = [row.row_version for row in rows] if row_version is None else [row_version]
        found = False
        for each in wanted:
            with error_queue.admin.connection.transaction():
                message = error_queue.admin.message(each)
            if message is not None:
                found = True
                yield message, error_queue.judged(message)
        if not found:
            raise QueueError(
                f"There is no such message in {error_queue.admin.name}, or another session is taking it; "
                f"see which are there with: {error_queue.listing}."
            )
