"""Follows a queue: yields each new row once, in RowVersion order, without locking any.

A row gets its number before its sender commits, so a row with a lower number may appear later. Missing
numbers are remembered for a while and looked for again (:class:`Gaps`). Late rows are yielded when they
appear. A row that was received before the follower saw it is not yielded.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from sqlqueue_spark.administration.queue_peek import Looked, QueueLook
from sqlqueue_spark.administration.queue_tables import opened
from sqlqueue_spark.engines.database_retry import FIRST_PAUSE, LONGEST_PAUSE
from sqlqueue_spark.errors import TryAgain
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.tables.queue_admin import Message, QueueAdmin

#: How long a missing number is awaited, and how many are awaited at most: the highest ones.
_AWAITED_SECONDS, _MOST_AWAITED = 60.0, 10_000
#: Late rows that are no further apart are read together, with the rows between them.
_NEAR = 10
#: At the beginning, missing numbers are awaited this far below the highest one.
_RECENT = 1_000
#: The longest pause between looks at an idle queue, in seconds.
_LONGEST_REST = 1.0
#: How often an idle queue is checked for having been dropped and created again.
_IDENTITY_SECONDS = 5.0


class Gaps:
    """The missing numbers below the highest one that was seen. Each is remembered for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: When each was noticed, in that order.
        self._noticed: dict[int, float] = {}

    def notice(self, after: int, up_to: int, seen: Iterable[int]) -> None:
        """Note the missing numbers above ``after``, up to ``up_to``, of which these were ``seen``."""
        missing = set(range(max(after, up_to - _MOST_AWAITED) + 1, up_to + 1)).difference(seen)
        self._noticed |= dict.fromkeys(sorted(missing), self._clock())
        too_many = max(0, len(self._noticed) - _MOST_AWAITED)
        for number in [*islice(self._noticed, too_many)]:
            del self._noticed[number]

    def awaited(self) -> list[int]:
        """Return the numbers that may still appear, ascending."""
        now = self._clock()
        kept = {number: when for number, when in self._noticed.items() if now - when <= _AWAITED_SECONDS}
        self._noticed = kept
        return sorted(kept)

    def appeared(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._noticed.pop(number, None)


def follow(
    options: ConnectionOptions,
    queue: str,
    selection: MessageSelection,
    *,
    note: Callable[[str], object] = lambda _: None,
    looked: Callable[[Looked], object] = lambda _: None,
) -> Iterator[Message]:
    """Yield the selected messages that arrive in a queue from now on. The iterator does not end by itself.

    :param note: is called with a sentence when the database is lost and when it is back.
    :param looked: is called with the number of rows so far: at the beginning, and after each look. Messages
        that arrive after its first call are yielded.
    :raises SqlQueueError: the database cannot be reached at the beginning, or the table does not exist.
    """
    watch = _Watch(selection, looked)
    away, pause = False, FIRST_PAUSE
    while True:
        try:
            with opened(options, queue, again=watch.begun) as admin:
                with admin.connection.transaction():
                    watch.begin(admin)
                if away:
                    note("The database answers again.")
                    away, pause = False, FIRST_PAUSE
                yield from watch.messages(admin)
        except TryAgain as error:
            if not watch.begun:
                raise
            if not away:
                note(f"{error} Trying again until it answers.")
            away = True
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


class _Watch:
    """The state that outlives a connection: the highest number seen, and the gaps below it.

    A row counts as seen just before it is yielded. So a lost connection repeats no row and skips none.
    """

    def __init__(self, selection: MessageSelection, looked: Callable[[Looked], object]) -> None:
        self._selection = selection
        self._looked = looked
        self._told = Looked()
        self._identity: str | None = None
        self._top = LOWEST
        self._gaps = Gaps()

    @property
    def begun(self) -> bool:
        """Whether the queue was found and its first look is done."""
        return self._identity is not None

    def begin(self, queue: QueueAdmin) -> None:
        """At first take all rows as seen that are in the queue now.

        If the table was dropped and created again since, start anew: then all its rows are new.
        """
        identity = queue.identity()
        if self.begun:
            if identity not in (None, self._identity):
                self._identity, self._top, self._gaps = identity, LOWEST, Gaps()
            return
        self._top = queue.highest()
        recent = max(LOWEST, self._top - _RECENT)
        found = queue.look(recent, self._top, _RECENT)
        self._gaps.notice(recent, self._top, found[0] if found else ())
        self._identity = identity
        self._looked(self._told)

    def messages(self, queue: QueueAdmin) -> Iterator[Message]:
        """Look repeatedly over one connection, and yield the new selected messages."""
        look = QueueLook(queue, self._selection)
        rest, checked = FIRST_PAUSE, time.monotonic()
        while True:
            before = self._told.rows
            yield from self._late(queue, look)
            yield from self._new(look)
            self._looked(self._told)
            if self._told.rows > before:
                rest = FIRST_PAUSE
                continue
            time.sleep(rest)
            rest = min(2 * rest, _LONGEST_REST)
            if time.monotonic() - checked > _IDENTITY_SECONDS:
                with queue.connection.transaction():
                    self.begin(queue)
                checked = time.monotonic()

    def _new(self, look: QueueLook) -> Iterator[Message]:
        for page in look.pages(self._top, HIGHEST):
            seen = page.row_versions
            for message in self._told.through(seen, page.messages):
                self._advance(seen, message.row_version)
                yield message
            self._advance(seen, seen[-1])

    def _late(self, queue: QueueAdmin, look: QueueLook) -> Iterator[Message]:
        there: list[int] = []
        for runs in RowSet.of(self._gaps.awaited()).chunks(queue.connection.dialect.chunk):
            with queue.connection.transaction():
                there += queue.present(list(runs.rows()))
        late, spans = frozenset(there), RowSet.of(there).spans(_NEAR)
        for page in chain.from_iterable(look.pages(span.first - 1, span.last) for span in spans):
            if own := [each for each in page.row_versions if each in late]:
                messages = filter(lambda each: each.row_version in late, page.messages)
                for message in self._told.through(own, messages):
                    self._gaps.appeared([message.row_version])
                    yield message
                self._gaps.appeared(own)

    def _advance(self, seen: Sequence[int], to: int) -> None:
        if to > self._top:
            self._gaps.notice(self._top, to, seen)
            self._top = to
