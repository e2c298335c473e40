"""Looks through a queue in RowVersion order, in portions of few rows and bytes; locks nothing and changes nothing.

Headers are not indexed, so a filter reads them: without the bodies, a few hundred rows a statement. Only of rows that are meant
the bodies are read too. Whatever stands in the queue, a look holds no more than a portion of it in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sqlqueue_spark.administration.queue_tables import opened
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queue_admin import Envelope, Message, QueueAdmin
from sqlqueue_spark.tables.queues import Queue

#: Rows of one statement that reads headers, and of one on a table where each statement reads the whole table.
_ROWS, _ROWS_BY_SCAN = 500, 100
#: Most bytes of bodies of one statement, unless a single row has more; bytes of rows that nobody means may be among them, where
#: that is cheaper than another statement.
_BYTES, _PASSED_OVER = 16 << 20, 64 << 10


@dataclass(kw_only=True)
class Looked:
    """How far a look came: how many rows it has seen, and how many of them were meant.

    :ivar last: the RowVersion of the last row that it has seen; None where it saw none.
    :ivar more: whether it ended although there may be more rows behind that one.
    """

    queue: str
    rows: int = 0
    meant: int = 0
    last: int | None = None
    more: bool = False


class Portion(NamedTuple):
    """Some rows that were looked at, and the messages of those that are meant, which are read one by one as they are asked for."""

    row_versions: Sequence[int]
    messages: Iterator[Message]


class QueueLook:
    """A look at one queue on an open connection; each statement is a transaction of its own."""

    def __init__(self, admin: QueueAdmin, selection: MessageSelection) -> None:
        self._admin = admin
        self._selection = selection

    def portions(self, after: int, up_to: int, most: Callable[[], int]) -> Iterator[Portion]:
        """The rows above ``after`` and up to ``up_to``, in RowVersion order.

        :param most: how many more rows may be looked at; it is asked before each portion.
        """
        rows, read = (_ROWS, self._by_number) if self._admin.seeks else (_ROWS_BY_SCAN, self._by_scan)
        while (count := min(rows, most())) > 0:
            portion = read(after, up_to, count)
            if portion.row_versions:
                yield portion
                after = portion.row_versions[-1]
            if len(portion.row_versions) < count:
                return

    def messages(self, row_versions: Sequence[int], count: int | None = None) -> Iterator[Message]:
        """Those of these rows, ascending, that are there and meant.

        :param count: how many rows stand from the first to the last of them, as far as is known.
        """
        wanted = set(row_versions)
        after, last = row_versions[0] - 1, row_versions[-1]
        count = count or len(row_versions)
        while after < last:
            with self._admin.connection.transaction():
                rows = self._admin.messages(after, count)
            yield from (each for each in rows if each.row_version in wanted and self._means(each))
            if len(rows) < count:
                return
            after = rows[-1].row_version

    def _by_number(self, after: int, up_to: int, count: int) -> Portion:
        with self._admin.connection.transaction():
            found = self._admin.envelopes(after, up_to, count)
        stretches = list(_stretches(found, [self._means(each) for each in found]))
        messages = chain.from_iterable(self.messages(numbers, rows) for numbers, rows in stretches)
        return Portion([each.row_version for each in found], messages)

    def _by_scan(self, after: int, up_to: int, count: int) -> Portion:
        """The same on a table without an index on RowVersion: whole rows at once, because each statement reads all that stands there."""
        with self._admin.connection.transaction():
            found = [each for each in self._admin.messages(after, count) if each.row_version <= up_to]
        return Portion([each.row_version for each in found], filter(self._means, found))

    def _means(self, row: Envelope | Message) -> bool:
        return self._selection.fits(row.id, row.headers)


def look(
    options: ConnectionOptions,
    queue: str,
    selection: MessageSelection,
    *,
    after: int = LOWEST,
    count: int | None = None,
    most: int | None = None,
    looked: Callable[[Looked], object] = lambda _: None,
) -> Iterator[Message]:
    """The messages that are meant, of the rows that stand in a queue when the look begins; rows that come later are left out.

    :param after: only rows with a higher RowVersion.
    :param count: so many messages at most.
    :param most: look at so many rows at most.
    :param looked: is told after each portion how far the look came.
    """
    with opened(options, queue) as admin:
        with admin.connection.transaction():
            up_to = Queue(admin.connection, admin.table).highest()
        told = Looked(queue=admin.table.name)

        def left() -> int:
            wanted = HIGHEST if count is None else count - told.meant
            rows = HIGHEST if most is None else most - told.rows
            # Where all are meant, no more are looked at than are wanted.
            return 0 if wanted <= 0 else rows if selection else min(rows, wanted)

        looked(told)
        for portion in QueueLook(admin, selection).portions(after, LOWEST if up_to is None else up_to, left):
            seen = portion.row_versions
            for message in portion.messages:
                yield message
                told.meant += 1
                if told.meant == count:
                    seen = [each for each in seen if each <= message.row_version]
                    break
            told.rows += len(seen)
            told.last = seen[-1]
            told.more = up_to is not None and told.last < up_to
            looked(told)


def _stretches(found: Sequence[Envelope], meant: Sequence[bool]) -> Iterator[tuple[list[int], int]]:
    """The rows that are meant, in stretches that are read at once, and how many rows stand in each stretch.

    A stretch is cut where its bodies become too many, and where rows that nobody means are too large to be read in vain.
    """
    numbers: list[int] = []
    rows = size = between = passed = 0
    for each, wanted in zip(found, meant, strict=True):
        of_row = each.body_bytes or 0
        if not wanted:
            between, passed = between + of_row, passed + 1
            continue
        if numbers and (between > _PASSED_OVER or size + between + of_row > _BYTES):
            yield numbers, rows
            numbers, rows, size = [], 0, 0
        if numbers:
            rows, size = rows + passed, size + between
        numbers.append(each.row_version)
        rows, size = rows + 1, size + of_row
        between = passed = 0
    if numbers:
        yield numbers, rows
