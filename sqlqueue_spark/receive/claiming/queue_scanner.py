"""Finds the next rows of one queue: where to look, what is left to neighbours, how long to rest."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.backlog import Backlog
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits, BatchSize
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool, QueueSession
from sqlqueue_spark.receive.claiming.headroom import Headroom
from sqlqueue_spark.receive.claiming.index_cleanup import IndexCleanup
from sqlqueue_spark.receive.claiming.late_rows import Head
from sqlqueue_spark.receive.claiming.next_batch import BatchMaker
from sqlqueue_spark.receive.claiming.poll_backoff import PollBackoff
from sqlqueue_spark.receive.claiming.set_aside import SetAside
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queues import Queue

#: Looks for rows of one queue; as :meth:`BatchMaker.find`.
Find = Callable[[Queue, int, int, BatchLimits], QueueRows | None]


@dataclass(frozen=True)
class Turn:
    """One queue's turn in an open transaction."""

    session: QueueSession
    queue: Queue
    limits: BatchLimits
    #: Whether the transaction holds rows of other queues already.
    held: bool

    def end(self, part: QueueRows | None) -> None:
        """Keep no lock where nothing is held: who alters an idle queue need not wait for others' batch."""
        if not self.held and (part is None or not part.locked):
            self.session.connection.rollback()
            self.session.hurry()


class QueueScanner:
    """Looks at one queue, each time above what it has found last, and comes back for late rows below."""

    def __init__(
        self,
        options: SourceOptions,
        pool: ConnectionPool,
        maker: BatchMaker,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        *,
        table: Table,
        name: str,
        size: BatchSize,
    ) -> None:
        self.table = table
        #: The canonical name.
        self.name = name
        self._maker = maker
        self._clock = clock
        self.pace = PollBackoff(options.poll_interval, clock, sleep)
        #: It is told what was found, except late rows.
        self.head = Head()
        #: No row above this one is claimed.
        self.end = HIGHEST
        self.backlog = Backlog(options.poll_interval, clock)
        self.headroom = Headroom(options.neighbour_headroom, clock, sleep, size)
        self.cleanup = IndexCleanup(pool, clock)
        #: Whether a limit ended the last share of a batch, so that a backlog waits; that share's number.
        self.full, self.served = False, 0
        self.aside = SetAside(name)
        self._look_seconds = 0.0  # how long the last look took

    @property
    def next_look(self) -> float:
        """When it is time to look, by the clock."""
        return max(self.pace.next_look, self.aside.until)

    def see_end(self, queue: Queue) -> None:
        """See where a run ends that has an end: when it begins, or when the queue can first be looked at."""
        if self._maker.bounded and self.end == HIGHEST:
            self.end = queue.highest()

    def onward(self, turn: Turn) -> QueueRows | None:
        """What stands above what was found last, or anywhere when it is time to look there.

        A bounded run ends only when the whole table has no row for it, also none that was left to neighbours.
        """
        self.see_end(turn.queue)
        after = self.head.next(self._clock())
        part = self._look(turn, self._find_onward, after, self.end)
        if part is None and self._maker.bounded and (after != LOWEST or self.headroom.beside_neighbours):
            part = self._look(turn, self._maker.find, LOWEST, self.end)
        return part

    def ahead(self, turn: Turn, after: int) -> QueueRows | None:
        """What a batch after the present one has; that one has in sight what is left to neighbours."""
        self.see_end(turn.queue)
        part = self._find_above(turn.queue, after, self.end, turn.limits)
        turn.end(part)
        return part

    def late(self, turn: Turn) -> QueueRows | None:
        """Late rows from below, above those that are left to neighbours, when it is time to look for them."""
        above = self.headroom.end
        ranges = [(max(after, above), end) for after, end in self.late_ranges() if end > above]
        seconds = 0.0
        for after, end in ranges:
            if (part := self._look(turn, self._maker.find, after, end)) is not None:
                return part
            seconds += self._look_seconds
        if ranges:
            self.head.looked_from_start(self._clock(), seconds)
        return None

    def everything(self, turn: Turn) -> QueueRows | None:
        """Everything that is there now, also what is left to neighbours."""
        highest = self.end if self.end != HIGHEST else turn.queue.highest()
        return self._look(turn, self._maker.find, LOWEST, highest)

    def late_ranges(self) -> list[tuple[int, int]]:
        return self.head.late_rows(self._clock())

    def nothing_found(self) -> None:
        """Note that no row is there: rest, unless the stream is to end now."""
        self.pace.nothing_found(then_end=self._maker.bounded)
        self.backlog.is_empty()

    def look_from_start_next(self) -> None:
        self.head.look_from_start_next()
        self.headroom.forget_claims()

    def _find_onward(self, queue: Queue, after: int, up_to: int, limits: BatchLimits) -> QueueRows | None:
        """Find rows behind those that are left to neighbours."""
        before = self.headroom.beside_neighbours
        above = max(after, self.headroom.begin(queue, limits.rows))
        if self.headroom.beside_neighbours:
            self.cleanup.begin_when_worth_it(queue)
        if before and not self.headroom.beside_neighbours:
            self.head.look_from_start_next()
            above = LOWEST
        return self._find_above(queue, above, up_to, limits)

    def _find_above(self, queue: Queue, above: int, up_to: int, limits: BatchLimits) -> QueueRows | None:
        """Find rows, and let the headroom know."""
        if above >= up_to:
            return None
        limits = self.headroom.limited(limits, told=queue.connection.dialect.tells_receivers)
        if (part := self._maker.find(queue, above, up_to, limits)) is not None:
            self.cleanup.rows += part.count
        self.headroom.claimed(queue, above, part)
        return part

    def _look(self, turn: Turn, find: Find, after: int, up_to: int) -> QueueRows | None:
        # Neither the time to make a connection is part of the look, nor that to measure a pace.
        began = self._clock() - self.headroom.measured_seconds
        part = find(turn.queue, after, up_to, turn.limits)
        self._look_seconds = self._clock() - self.headroom.measured_seconds - began
        turn.end(part)
        if after == LOWEST:
            self.head.looked_from_start(self._clock(), self._look_seconds)
        return part
