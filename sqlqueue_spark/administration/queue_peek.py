"""Reads a queue in RowVersion order, page by page, without locking or changing a row.

Headers are not indexed, so a filter reads the headers of a few hundred rows a statement. Bodies are read of
the selected rows only. At most one page is held in memory.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, starmap
from typing import NamedTuple

from sqlqueue_spark.administration.queue_tables import opened
from sqlqueue_spark.messages.body import LARGEST_ROW
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queue_admin import Envelope, Message, QueueAdmin

#: Rows of a page, and of one on a table without an index, where each statement reads the whole table.
_ROWS, _ROWS_BY_SCAN = 500, 100
#: Maximum bytes of rows that one statement reads; a larger row is read alone. Up to _PASSED_OVER bytes of
#: unselected rows in between are read too, because that is cheaper than another statement.
_BYTES, _PASSED_OVER = 16 << 20, 64 << 10
_ALL = MessageSelection()


class Page(NamedTuple):
    """Rows read together, and whether more may follow. The messages are fetched as they are iterated over."""

    rows: Sequence[Envelope | Message]
    messages: Iterator[Message]
    more: bool

    @property
    def row_versions(self) -> list[int]:
        return [each.row_version for each in self.rows]


@dataclass(kw_only=True)
class Looked:
    """How far a look has come.

    :ivar meant: how many of them were selected.
    :ivar last: the RowVersion of the last row that it has seen; None if it saw none.
    :ivar more: whether rows may follow the last one.
    """

    rows: int = 0
    meant: int = 0
    last: int | None = None
    more: bool = False

    def through(self, row_versions: Sequence[int], messages: Iterator[Message]) -> Iterator[Message]:
        """Yield the selected messages of these rows; count the rows up to each, at the end all of them."""
        before = self.rows
        for message in messages:
            self.meant, self.last = self.meant + 1, message.row_version
            self.rows = before + bisect_right(row_versions, message.row_version)
            yield message
        self.rows, self.last = before + len(row_versions), row_versions[-1]


class QueueLook:
    """A look at one queue on an open connection. Each page, and each read of messages, is a transaction."""

    def __init__(self, admin: QueueAdmin, selection: MessageSelection = _ALL) -> None:
        self._admin = admin
        self._selection = selection

    def pages(self, after: int, up_to: int, most: Callable[[], int] = lambda: HIGHEST) -> Iterator[Page]:
        """Yield the rows above ``after``, up to ``up_to``, in RowVersion order.

        :param most: returns how many more rows may be read; it is called before each page.
        """
        with self._admin.connection.transaction():
            rows, read = (_ROWS, self._by_number) if self._admin.seeks else (_ROWS_BY_SCAN, self._by_scan)
        more = True
        while more and (count := min(rows, most())) > 0:
            with self._admin.connection.transaction():
                page = read(after, up_to, count)
            if page.rows:
                yield page
                after = page.rows[-1].row_version
            more = page.more

    def _messages(self, row_versions: Sequence[int], count: int) -> Iterator[Message]:
        """Yield those of these rows that exist and are selected, in ascending order.

        :param count: how many rows there are from the first to the last of them, as far as is known.
        """
        wanted = set(row_versions)
        after, last = row_versions[0] - 1, row_versions[-1]
        while after < last:
            with self._admin.connection.transaction():
                rows = self._admin.messages(after, count)
            yield from (each for each in rows if each.row_version in wanted and self._means(each))
            if len(rows) < count:
                return
            after = rows[-1].row_version

    def _by_number(self, after: int, up_to: int, count: int) -> Page:
        count = self._admin.fitting(after, up_to, count)
        found = self._admin.envelopes(after, up_to, count)
        stretches = _stretches(found, [self._means(each) for each in found])
        messages = chain.from_iterable(starmap(self._messages, stretches))
        return Page(found, messages, more=len(found) == count)

    def _by_scan(self, after: int, up_to: int, count: int) -> Page:
        """Read a page with its bodies. Without an index each statement reads the whole table anyway."""
        found = [each for each in self._admin.messages(after, count) if each.row_version <= up_to]
        return Page(found, filter(self._means, found), more=len(found) == count)

    def _means(self, row: Envelope | Message) -> bool:
        """Whether a row is selected. One that no client can read is not, where its body is not read yet."""
        readable = isinstance(row, Message) or _size(row) <= LARGEST_ROW
        return readable and self._selection.fits(row.id, row.headers)


def look(
    options: ConnectionOptions,
    queue: str,
    selection: MessageSelection = _ALL,
    *,
    after: int = LOWEST,
    count: int = HIGHEST,
    most: int = HIGHEST,
    looked: Callable[[Looked], object] = lambda _: None,
) -> Iterator[Message]:
    """Yield the selected messages of a queue. Rows that arrive after the look has begun are left out.

    :param count: how many messages are yielded at most, and ``most`` how many rows are read for them.
    :param looked: is called after each page with how far the look has come.
    """
    with opened(options, queue) as admin:
        with admin.connection.transaction():
            up_to = admin.highest()
        told = Looked()

        def left() -> int:
            wanted, rows = count - told.meant, most - told.rows
            # Without a filter no more rows are read than messages are wanted.
            return 0 if wanted <= 0 else rows if selection else min(rows, wanted)

        looked(told)
        for page in QueueLook(admin, selection).pages(after, up_to, left):
            for message in told.through(page.row_versions, page.messages):
                yield message
                if told.meant == count:
                    break
            told.more = told.last != up_to
            looked(told)


def _stretches(found: Sequence[Envelope], meant: Sequence[bool]) -> Iterator[tuple[list[int], int]]:
    """Yield the stretches of selected rows that one statement reads, each with the number of all its rows.

    A stretch ends where its bodies, or those of unselected rows in between, become too large.
    """
    numbers: list[int] = []
    rows = size = 0
    new: list[int] = []  # the sizes of the rows behind the last one of the stretch
    for each, wanted in zip(found, meant, strict=True):
        new.append(_size(each))
        if not wanted:
            continue
        if numbers and (sum(new[:-1]) > _PASSED_OVER or size + sum(new) > _BYTES):
            yield numbers, rows
            numbers, rows, size = [], 0, 0
        if not numbers:
            new = new[-1:]
        numbers.append(each.row_version)
        rows, size, new = rows + len(new), size + sum(new), []
    if numbers:
        yield numbers, rows


def _size(row: Envelope) -> int:
    return (row.body_bytes or 0) + len(row.headers or "")
