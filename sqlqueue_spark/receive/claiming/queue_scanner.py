"""Finds the next rows of one queue: where to look, what is left to neighbours, how long to rest.

:func:`take_turns` looks at each queue of a stream: in which order, and how many rows each may have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.backlog import Backlog
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits, BatchSize
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.headroom import Headroom
from sqlqueue_spark.receive.claiming.index_cleanup import IndexCleanup
from sqlqueue_spark.receive.claiming.late_rows import Head
from sqlqueue_spark.receive.claiming.next_batch import Find, QueueRows, setting_aside
from sqlqueue_spark.receive.claiming.poll_backoff import PollBackoff
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queues import Queue

#: Runs a look on the queue in an open transaction, and gives what it finds.
Search = Callable[[Callable[[Queue], QueueRows | None]], QueueRows | None]


@dataclass
class Scan:
    """A range of rows, above ``after`` and up to ``up_to``, and how long it took to look there."""

    after: int
    up_to: int
    seconds: float = 0.0
    #: Whether it goes on from the last claim. Then it leaves the oldest free rows to neighbours.
    leaves_headroom: bool = False


class QueueScanner:
    """Looks at one queue, each time above what it has found last, and comes back for late rows below.

    :param name: the canonical name of the queue.
    :param find: how to look, and what becomes of the rows that are found.
    """

    def __init__(
        self,
        options: SourceOptions,
        find: Find,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        *,
        table: Table,
        name: str,
        size: BatchSize,
    ) -> None:
        self.table, self.name = table, name
        self._find = find
        self._clock = clock
        self.pace = PollBackoff(options.poll_interval, clock, sleep)
        #: It is told what was found, except late rows.
        self.head = Head()
        #: No row above this one is claimed.
        self.end = HIGHEST
        self.backlog = Backlog(options.poll_interval, clock)
        self.headroom = Headroom(options.neighbour_headroom, clock, sleep, size)
        self.cleanup = IndexCleanup(Target.of(options), clock)
        #: Whether a limit ended the last share of a batch, so that a backlog waits; that share's number.
        self.full, self.served = False, 0
        #: What was wrong with the queue when it was last looked at, and until when it is set aside.
        self.failure: SqlQueueError | None = None
        self.not_before = 0.0

    @property
    def next_look(self) -> float:
        """When it is time to look, by the clock."""
        return max(self.pace.next_look, self.not_before)

    @property
    def bounded(self) -> bool:
        """Whether this run ends at a row (``Trigger.AvailableNow``)."""
        return self.end != HIGHEST

    def onward(self, search: Search, limits: BatchLimits) -> QueueRows | None:
        """What stands above what was found last, or anywhere when it is time to look there.

        A bounded run ends only when the whole table has no row for it, also none that was left to neighbours.
        """
        after = self.head.next(self._clock())
        part = self._look(search, Scan(after, self.end, leaves_headroom=True), limits)
        if part is None and self.bounded and after != LOWEST:
            part = self._look(search, Scan(LOWEST, self.end), limits)
        if part is None and self.bounded and self.headroom.beside_neighbours:
            part = self._look(search, Scan(LOWEST, self.end), limits)
        return part

    def late(self, search: Search, limits: BatchLimits) -> QueueRows | None:
        """Late rows from below, above those that are left to neighbours, when it is time to look for them."""
        above = self.headroom.end
        ranges = self.head.late_rows(self._clock())
        scans = [Scan(max(after, above), up_to) for after, up_to in ranges if up_to > above]
        for scan in scans:
            if (part := self._look(search, scan, limits)) is not None:
                return part
        if scans:
            self.head.looked_from_start(self._clock(), sum(scan.seconds for scan in scans))
        return None

    def everything(self, search: Search, limits: BatchLimits) -> QueueRows | None:
        """Everything that is there now, also what is left to neighbours."""

        def find(queue: Queue) -> QueueRows | None:
            highest = self.end if self.bounded else queue.highest()
            scan = Scan(LOWEST, LOWEST if highest is None else highest)
            return self._look(lambda look: look(queue), scan, limits)

        return search(find)

    @property
    def late_due(self) -> bool:
        return bool(self.head.late_rows(self._clock()))

    def nothing_found(self) -> None:
        """Note that no row is there: rest, unless the stream is to end now."""
        self.pace.nothing_found(then_end=self.bounded)
        self.backlog.is_empty()

    def look_from_start_next(self) -> None:
        self.head.look_from_start_next()
        self.headroom.forget_claims()

    def find_onward(
        self, queue: Queue, after: int, up_to: int, limits: BatchLimits, *, ahead: bool = False
    ) -> QueueRows | None:
        """Look behind the rows that are left to neighbours.

        :param ahead: whether the rows are claimed for a batch after the present one, which has what is left
            to neighbours in sight.
        """
        before = self.headroom.beside_neighbours
        above = after if ahead else max(after, self.headroom.begin(queue))
        if self.headroom.beside_neighbours and self.headroom.filled_up:
            self.cleanup.begin_when_worth_it(queue)
        if before and not self.headroom.beside_neighbours:
            self.head.look_from_start_next()
            above = LOWEST
        if above >= up_to:
            return None
        told = queue.connection.dialect.tells_receivers
        part = self._find(queue, above, up_to, self.headroom.limited(limits, told=told))
        if part is not None:
            self.cleanup.rows += part.rows.rows
        self.headroom.claimed(queue, above, part)
        return part

    def _look(self, search: Search, scan: Scan, limits: BatchLimits) -> QueueRows | None:
        def find(queue: Queue) -> QueueRows | None:
            # Not before: the time to make a connection is not part of the look, nor that to measure a pace.
            began = self._clock() - self.headroom.measured_seconds
            look = self.find_onward if scan.leaves_headroom else self._find
            part = look(queue, scan.after, scan.up_to, limits)
            scan.seconds = self._clock() - self.headroom.measured_seconds - began
            return part

        part = search(find)
        if scan.after == LOWEST:
            self.head.looked_from_start(self._clock(), scan.seconds)
        return part


#: Looks at one queue within limits.
Look = Callable[[QueueScanner, Search, BatchLimits], QueueRows | None]


def take_turns(
    session: QueueSession,
    scanners: Sequence[QueueScanner],
    limits: BatchLimits,
    look: Look,
    looked: list[tuple[QueueScanner, QueueRows | None]],
) -> None:
    """Look at each queue in the open transaction. Each may have a fair share of what those before it left.

    :param looked: is given what each queue has, also where a later one fails.
    :raises QueueFails: something is wrong with one of several queues.
    """
    session.hurry()
    # Those first that are likely to have few rows, because what they leave goes to the others. Where a batch
    # has fewer rows than there are queues, those come first that have waited longest.
    enough = limits.rows >= len(scanners)
    scanners = sorted(scanners, key=lambda each: (enough and each.full, each.served))
    for at, scanner in enumerate(scanners):
        if limits.rows <= 0 or limits.bytes <= 0:
            return
        held = any(part is not None and part.locked for _, part in looked)
        with setting_aside(session, scanner.name):
            part = look(scanner, _search(session, scanner.table, held=held), limits.share(len(scanners) - at))
        looked.append((scanner, part))
        if part is not None:
            rows, size = limits.rows - part.rows.rows, limits.bytes - part.rows.bytes
            limits = replace(limits, rows=rows, bytes=size)


def _search(session: QueueSession, table: Table, *, held: bool) -> Search:
    """:param held: whether the transaction holds rows of other queues already."""

    def search(find: Callable[[Queue], QueueRows | None]) -> QueueRows | None:
        part = find(session.at(table))
        if not held and (part is None or not part.locked):
            # A statement that alters an idle queue need not wait until the batch of the others is settled.
            session.connection.rollback()
            session.hurry()
        return part

    return search
