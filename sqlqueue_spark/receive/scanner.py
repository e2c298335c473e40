"""Finds the rows of the next batch: when to look, what comes first, how much to claim, how long to rest."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.batch_size import BatchSize
from sqlqueue_spark.receive.claim import Limits
from sqlqueue_spark.receive.claim_ahead import IDLE_SECONDS, Asked, ClaimAhead, worthwhile
from sqlqueue_spark.receive.connection_pool import ConnectionPool
from sqlqueue_spark.receive.found import Alone, Batch, Find
from sqlqueue_spark.receive.offset import Json, Offset
from sqlqueue_spark.receive.queue_scanner import QueueScanner
from sqlqueue_spark.row_set import LOWEST

#: The rows of a stream's first batch, if it may have so many.
_FIRST_ROWS = 100_000

B = TypeVar("B", bound=Batch)
F = TypeVar("F", bound=Alone)


class StreamScanner(ABC, Generic[B]):
    """Makes the claims of one stream, one after the other.

    The caller settles or releases each claim that it is given. A claim ahead belongs to the scanner until it is asked for.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._ahead: ClaimAhead[B] | None = None
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

    @abstractmethod
    def rest(self) -> None:
        """Sleep while it is not yet time to look again, but never for long."""

    @property
    @abstractmethod
    def due(self) -> bool:
        """Whether it is time to look."""

    def next(self, start: Offset | None, max_rows: int | None) -> B | None:
        """Claim the next rows; None when there are none, it is not time to look, or ``stopFile`` asks to stop.

        :param start: the offset that the claim follows.
        :param max_rows: most rows to claim; None is everything that is there now.
        """
        self._batch_ended()
        if self._options.stop_file is not None and Path(self._options.stop_file).exists():
            self._give_back_ahead()
            return None
        if not self.due:
            return None
        if max_rows is None:
            self._give_back_ahead()
            found = self._everything(start)
        else:
            found = self._next(start, max_rows)
        self._say_found(found)
        if found is not None:
            self._batch_begins(found)
        return found

    @abstractmethod
    def claim_ahead(self, present: B) -> None:
        """Begin to claim what follows the present batch, where a backlog is likely to wait."""

    @abstractmethod
    def stop_at_present_end(self) -> None:
        """Claim nothing that arrives from now on."""

    @abstractmethod
    def look_from_start_next(self) -> None:
        """Begin the next look at the start: a claim was given up or lost, so rows may stand anywhere below."""

    @abstractmethod
    def waiting(self) -> Json | None:
        """How many rows wait behind the last claim and how old the oldest is, and how many were left to neighbours.

        All is as last seen; it asks no database.
        """

    def close(self) -> None:
        """End what runs in the background, and give back what was claimed ahead."""
        self.give_up_ahead()

    def give_up_ahead(self) -> None:
        """Give back to everybody what was claimed ahead."""
        if self._ahead is not None:
            self._ahead.give_up()
            self._ahead = None

    def _give_back_ahead(self, because: str = "") -> None:
        """Give back what was claimed ahead, and wait: a claim that follows at once would step over rows that are not free yet."""
        if self._ahead is not None:
            self._ahead.give_back(because)
            self._ahead = None

    def batch_done(self) -> None:
        """Note that the present batch is done: a claim ahead is given back soon unless somebody asks for it."""
        self._batch_ended()
        if self._ahead is not None:
            self._ahead.give_up_within(IDLE_SECONDS)

    # -- what comes first ------------------------------------------------------------------------

    def _next(self, start: Offset | None, max_rows: int) -> B | None:
        """Late rows from below when it is time to look for them, else the claim made ahead, else a new one."""
        rows = max_rows if self._size is None else min(max_rows, self._size.rows)
        self._limits = Limits(rows=rows, bytes=self._options.max_bytes_per_trigger)
        found = None
        self._give_back_to_neighbours()
        if self._ahead is not None:
            if not self._ahead_waited and (found := self._late(start)) is not None:
                self._ahead_waited = True
                return found
            found = self._take_ahead(start)
        if found is None:
            found = self._onward(start)
        return found

    @abstractmethod
    def _everything(self, start: Offset | None) -> B | None:
        """Everything that is there now."""

    @abstractmethod
    def _late(self, start: Offset | None) -> B | None:
        """Late rows, if it is time to look for them."""

    @abstractmethod
    def _onward(self, start: Offset | None) -> B | None:
        """The next rows."""

    @abstractmethod
    def _appeared(self, ahead: B) -> bool:
        """Whether neighbours are seen who were not there when a claim was made ahead."""

    @abstractmethod
    def _taken(self, ahead: B) -> None:
        """Note that a claim ahead is the present batch now."""

    @abstractmethod
    def _say_found(self, found: B | None) -> None:
        """Note whether a look has found rows."""

    def _give_back_to_neighbours(self) -> None:
        """Give a claim ahead back where neighbours are seen: it holds the rows that they come to next."""
        if self._ahead is None or (made := self._ahead.made()) is None:
            return
        if self._appeared(made):
            self._give_back_ahead("neighbours are seen")

    def _take_ahead(self, start: Offset | None) -> B | None:
        assert self._ahead is not None, "asked only where there is one"
        ahead, self._ahead = self._ahead, None
        self._ahead_waited = False
        held = ahead.take()
        if held is not None:
            held.follow(start)
            try:
                self._taken(held)
            except BaseException:
                held.release()
                raise
        return held

    # -- how much --------------------------------------------------------------------------------

    def _batch_begins(self, found: B) -> None:
        if self._size is not None:
            self._size.begins(found.count, more=found.full)
            self._began = self._clock()

    def _batch_ended(self) -> None:
        """Learn from the time of the present batch how many rows the next may have; calling again is harmless."""
        if self._size is not None and self._began is not None:
            self._size.done(self._clock() - self._began, cold=self._cold)
            self._cold = False
        self._began = None


class Scanner(StreamScanner[F]):
    """Makes the claims of a stream that reads one queue.

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
        super().__init__(options, clock)
        self._pool = pool
        self._queue = QueueScanner(options, find, clock, sleep)

    def rest(self) -> None:
        self._queue.pace.wait()

    @property
    def due(self) -> bool:
        return self._queue.pace.due

    def claim_ahead(self, present: F) -> None:
        end = self._queue.scans.end
        wanted = self._options.claim_ahead and not self._queue.headroom.beside_neighbours
        if wanted and self._ahead is None and worthwhile(present, end):
            limits, least = self._limits, present.count
            find = functools.partial(self._queue.find_onward, ahead=True)

            def claim(asked: Asked) -> F | None:
                # Spark need not wait for a batch that grows faster than it is claimed, and batches get no smaller by that.
                within = replace(limits, enough=lambda rows: asked() and rows >= least)
                return self._pool.search(lambda queue: find(queue, present.end, present.last, end, within))

            self._ahead = ClaimAhead(claim, present.end.queue, told=self._options.done_file is not None)

    def close(self) -> None:
        super().close()
        self._queue.cleanup.close()

    def batch_done(self) -> None:
        self._queue.headroom.batch_done()
        super().batch_done()

    def look_from_start_next(self) -> None:
        self._queue.look_from_start_next()

    def stop_at_present_end(self) -> None:
        self._queue.scans.end = self._highest()

    def waiting(self) -> Json | None:
        seen = self._queue.backlog.seen
        return None if seen is None else {**seen, "leftToNeighbours": self._queue.headroom.left}

    def _everything(self, start: Offset | None) -> F | None:
        scans = self._queue.scans
        return self._queue.everything(
            self._pool.search, start, scans.end if scans.bounded else self._highest()
        )

    def _late(self, start: Offset | None) -> F | None:
        return self._queue.late(self._pool.search, start, self._limits)

    def _onward(self, start: Offset | None) -> F | None:
        found = self._queue.onward(self._pool.search, start, self._limits)
        if found is not None:
            found.mark(self._queue.scans.head)
        return found

    def _appeared(self, ahead: F) -> bool:  # noqa: ARG002 -- there is one queue
        with self._pool.transaction() as queue:
            appeared = self._queue.headroom.appeared(queue)
        if appeared:
            self._queue.scans.head.look_from_start_next()
        return appeared

    def _taken(self, ahead: F) -> None:
        if self._queue.backlog.due:
            with self._pool.transaction() as queue:
                self._queue.backlog.look(queue, ahead.last)
        ahead.mark(self._queue.scans.head)

    def _say_found(self, found: F | None) -> None:
        if found is None:
            self._queue.nothing_found()
        else:
            self._queue.pace.found()

    def _highest(self) -> int:
        with self._pool.transaction() as queue:
            highest = queue.highest()
        return LOWEST if highest is None else highest
