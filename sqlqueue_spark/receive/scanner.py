"""Finds the rows of the next batch: when to look, what comes first, how much to claim, how long to rest."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from sqlqueue_spark.engines.connections import Target
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.backlog import Backlog
from sqlqueue_spark.receive.batch_size import BatchSize
from sqlqueue_spark.receive.claim import Limits
from sqlqueue_spark.receive.claim_ahead import IDLE_SECONDS, ClaimAhead, worthwhile
from sqlqueue_spark.receive.connection_pool import ConnectionPool
from sqlqueue_spark.receive.found import Find, Found
from sqlqueue_spark.receive.headroom import Headroom
from sqlqueue_spark.receive.index_cleanup import IndexCleanup
from sqlqueue_spark.receive.offset import Json, Offset
from sqlqueue_spark.receive.poll_backoff import PollBackoff
from sqlqueue_spark.receive.scan_positions import Scan, Scans
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queues import Queue

#: The rows of a stream's first batch, if it may have so many.
_FIRST_ROWS = 100_000

F = TypeVar("F", bound=Found)


class Scanner(Generic[F]):
    """Makes the claims of one stream, each above the last one, and comes back for late rows below.

    The caller settles or releases each claim that it is given. A claim ahead belongs to the scanner until it is asked for.

    :param find: how to look, and what becomes of the rows that are found.
    """

    def __init__(
        self,
        options: SourceOptions,
        pool: ConnectionPool,
        find: Find[F],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._pool = pool
        self._find = find
        self._clock = clock
        self._pace = PollBackoff(options.poll_interval, clock, sleep)
        self._scans = Scans(clock)
        self._backlog = Backlog(options.poll_interval, clock)
        self._headroom = Headroom(options.neighbour_headroom, clock)
        self._cleanup = IndexCleanup(Target.of(options), clock)
        self._ahead: ClaimAhead[F] | None = None
        #: Late rows went before the claim ahead. Now it comes next: it is locked, and there may always be another late row.
        self._ahead_waited = False
        self._limits = Limits(rows=options.most_rows, bytes=options.max_bytes_per_trigger)
        self._size: BatchSize | None = None
        if options.adaptive_batch:
            self._size = BatchSize(
                _FIRST_ROWS, options.target_batch_duration.total_seconds(), options.most_rows
            )
        #: When the present batch began; None where none runs.
        self._began: float | None = None
        #: Whether the present batch is the first one, which Spark's start makes longer.
        self._cold = True

    def rest(self) -> None:
        """Sleep while it is not yet time to look again, but never for long."""
        self._pace.wait()

    @property
    def due(self) -> bool:
        """Whether it is time to look."""
        return self._pace.due

    def next(self, start: Offset | None, max_rows: int | None) -> F | None:
        """Claim the next rows; None when there are none, it is not time to look, or ``stopFile`` asks to stop.

        :param start: the offset that the claim follows.
        :param max_rows: most rows to claim; None is everything that is there now.
        """
        self._batch_ended()
        if self._options.stop_file is not None and Path(self._options.stop_file).exists():
            self.give_up_ahead()
            return None
        if not self._pace.due:
            return None
        found = self._everything(start) if max_rows is None else self._next(start, max_rows)
        if found is None:
            self._pace.nothing_found(then_end=self._scans.bounded)
            self._backlog.is_empty()
        else:
            self._pace.found()
            self._batch_begins(found)
        return found

    def claim_ahead(self, present: F) -> None:
        """Begin to claim what follows the present batch, where a backlog is likely to wait."""
        end = self._scans.end
        wanted = self._options.claim_ahead and not (self._headroom.beside_neighbours or self._samples)
        if wanted and self._ahead is None and worthwhile(present, end):
            told = self._options.done_file is not None
            find = functools.partial(self._find_onward, ahead=True)
            self._ahead = ClaimAhead(self._pool, find, present, end, self._limits, told=told)

    def close(self) -> None:
        """End what runs in the background, and give back what was claimed ahead."""
        self.give_up_ahead()
        self._cleanup.close()

    def give_up_ahead(self) -> None:
        """Give back to everybody what was claimed ahead."""
        if self._ahead is not None:
            self._ahead.give_up()
            self._ahead = None

    def batch_done(self) -> None:
        """Note that the present batch is done: a claim ahead is given back soon unless somebody asks for it."""
        self._headroom.batch_done()
        self._batch_ended()
        if self._ahead is not None:
            self._ahead.give_up_within(IDLE_SECONDS)

    def look_from_start_next(self) -> None:
        """Begin the next look at the start: a claim was given up or lost, so rows may stand anywhere below."""
        self._scans.head.look_from_start_next()
        self._headroom.forget_claims()

    def stop_at_present_end(self) -> None:
        """Claim nothing that arrives from now on."""
        self._scans.end = self._highest()

    def waiting(self) -> Json | None:
        """How many rows wait behind the last claim and how old the oldest is, and how many were left to neighbours.

        All is as last seen; it asks no database.
        """
        seen = self._backlog.seen
        return None if seen is None else {**seen, "leftToNeighbours": self._headroom.left}

    def _batch_begins(self, found: F) -> None:
        if self._size is not None:
            self._size.begins(found.rows.rows)
            self._began = self._clock()

    def _batch_ended(self) -> None:
        """Learn from the time of the present batch how many rows the next may have; calling again is harmless."""
        if self._size is not None and self._began is not None:
            self._size.done(self._clock() - self._began, cold=self._cold)
            self._cold = False
        self._began = None

    @property
    def _samples(self) -> bool:
        """Whether the present batch is to show how large the next one may be."""
        size = self._size
        return self._cold and size is not None and size.full and size.rows < self._options.most_rows

    # -- what comes first ------------------------------------------------------------------------

    def _next(self, start: Offset | None, max_rows: int) -> F | None:
        """Late rows from below when it is time to look for them, else the claim made ahead, else a new one."""
        rows = max_rows if self._size is None else min(max_rows, self._size.rows)
        self._limits = Limits(rows=rows, bytes=self._options.max_bytes_per_trigger)
        found = None
        self._give_back_to_neighbours()
        if self._ahead is not None:
            late = () if self._ahead_waited else self._scans.late(self._headroom.end)
            if (found := self._first(start, late, self._limits)) is not None:
                self._ahead_waited = True
                return found
            found = self._take_ahead(start)
        if found is None:
            found = self._first(start, self._scans.onward(), self._limits)
        if found is None and self._scans.bounded and self._headroom.beside_neighbours:
            # The run ends with what was left to neighbours.
            found = self._first(start, [Scan(LOWEST, self._scans.end)], self._limits)
        if found is not None:
            found.mark(self._scans.head)
        return found

    def _everything(self, start: Offset | None) -> F | None:
        """Everything that is there now."""
        self.give_up_ahead()
        end = self._scans.end if self._scans.bounded else self._highest()
        return self._first(start, [Scan(LOWEST, end)], Limits(rows=HIGHEST, bytes=HIGHEST))

    def _give_back_to_neighbours(self) -> None:
        """Give a claim ahead back where neighbours are seen: it holds the rows that they come to next."""
        if self._ahead is None or not self._ahead.is_made():
            return
        with self._pool.transaction() as queue:
            appeared = self._headroom.appeared(queue)
        if appeared:
            self._ahead.give_back("neighbours are seen")
            self._ahead = None
            self._scans.head.look_from_start_next()

    def _take_ahead(self, start: Offset | None) -> F | None:
        assert self._ahead is not None, "asked only where there is one"
        ahead, self._ahead = self._ahead, None
        self._ahead_waited = False
        held = ahead.take()
        if held is not None:
            held.follow(start)
            try:
                if self._backlog.due:
                    with self._pool.transaction() as queue:
                        self._backlog.look(queue, held.last)
            except BaseException:
                held.release()
                raise
        return held

    # -- looking ---------------------------------------------------------------------------------

    def _first(self, start: Offset | None, scans: Iterable[Scan], limits: Limits) -> F | None:
        """What the first scan that finds rows has found."""
        for scan in scans:
            if (found := self._look(start, scan, limits)) is not None:
                return found
        return None

    def _look(self, start: Offset | None, scan: Scan, limits: Limits) -> F | None:
        def find(queue: Queue) -> F | None:
            began = self._clock()  # not before: the time to make a connection is not part of the look
            look = self._find_onward if scan.leaves_headroom else self._find
            found = look(queue, start, scan.after, scan.up_to, limits)
            scan.seconds = self._clock() - began
            if found is not None and self._backlog.due:
                # PostgreSQL keeps the last statement's scan, and with it an index page, until the transaction's next statement.
                # Every VACUUM waits for that page, our cleanup too, for as long as the batch lasts. The attempt's end lets it go.
                with queue.connection.attempt():
                    self._backlog.look(queue, found.last)
            return found

        found = self._pool.search(find)
        self._scans.done(scan)
        return found

    def _find_onward(
        self,
        queue: Queue,
        start: Offset | None,
        after: int,
        up_to: int,
        limits: Limits,
        *,
        ahead: bool = False,
    ) -> F | None:
        """Look behind the rows that are left to neighbours."""
        before = self._headroom.beside_neighbours
        above = after if ahead else max(after, self._headroom.begin(queue))
        if self._headroom.beside_neighbours and self._headroom.filled_up:
            self._cleanup.begin_when_worth_it(queue)
        if before and not self._headroom.beside_neighbours:
            self._scans.head.look_from_start_next()
            above = LOWEST
        if above >= up_to:
            return None
        found = self._find(queue, start, above, up_to, self._headroom.limited(limits))
        if found is not None:
            self._cleanup.rows += found.rows.rows
        try:
            self._headroom.claimed(queue, above, found, ahead=ahead)
        except BaseException:
            if found is not None:
                found.release()
            raise
        return found

    def _highest(self) -> int:
        with self._pool.transaction() as queue:
            highest = queue.highest()
        return LOWEST if highest is None else highest
