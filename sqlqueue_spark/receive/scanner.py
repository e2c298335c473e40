"""Finds the rows of the next batch: where to look, how much to claim, how long to rest when nothing is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from sqlqueue_spark.messages.message import time_sent
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claim import Head, Limits
from sqlqueue_spark.receive.claim_ahead import IDLE_SECONDS, ClaimAhead, worthwhile
from sqlqueue_spark.receive.connection_pool import ConnectionPool
from sqlqueue_spark.receive.look import Find, Found
from sqlqueue_spark.receive.offset import Json, Offset
from sqlqueue_spark.receive.poll_backoff import PollBackoff
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queues import Queue

F = TypeVar("F", bound=Found)

_NOBODY: Json = {"rows": 0, "oldestSeconds": 0}


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
        self._head = Head()
        self._ahead: ClaimAhead[F] | None = None
        #: Late rows went before the claim ahead. Now it comes next: it is locked, and there may always be another late row.
        self._ahead_waited = False
        self._limits = Limits(rows=options.max_messages_per_trigger, bytes=options.max_bytes_per_trigger)
        #: No row above this one is claimed.
        self._end = HIGHEST
        self._waiting: Json | None = None
        self._next_waiting = 0.0
        #: Seconds that the last look took.
        self._took = 0.0

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
        if self._asked_to_stop():
            self.give_up_ahead()
            return None
        if not self._pace.due:
            return None
        held = self._next(start, max_rows)
        if held is None:
            self._pace.nothing_found(then_end=self._bounded)
            self._waiting = _NOBODY
        else:
            self._pace.found()
        return held

    def claim_ahead(self, present: F) -> None:
        """Begin to claim what follows the present batch, where a backlog is likely to wait."""
        if self._options.claim_ahead and self._ahead is None and worthwhile(present, self._end):
            told = self._options.done_file is not None
            self._ahead = ClaimAhead(self._pool, self._find, present, self._end, self._limits, told=told)

    def give_up_ahead(self) -> None:
        """Give back to everybody what was claimed ahead."""
        if self._ahead is not None:
            self._ahead.give_up()
            self._ahead = None

    def batch_done(self) -> None:
        """Note that the present batch is done: a claim ahead is given back soon unless somebody asks for it."""
        if self._ahead is not None:
            self._ahead.give_up_within(IDLE_SECONDS)

    def look_from_start_next(self) -> None:
        """Begin the next look at the start: a claim was given up or lost, so rows may stand anywhere below."""
        self._head.look_from_start_next()

    def stop_at_present_end(self) -> None:
        """Claim nothing that arrives from now on."""
        self._end = self._highest()

    def waiting(self) -> Json | None:
        """How many rows wait behind the last claim and how old the oldest is, as last seen; asks no database."""
        return self._waiting

    # -- where to look ---------------------------------------------------------------------------

    def _next(self, start: Offset | None, max_rows: int | None) -> F | None:
        """The next claim: late rows from below when it is time to look, else the one made ahead, else a new one."""
        if max_rows is None:
            self.give_up_ahead()
            end = self._end if self._bounded else self._highest()
            return self._look(start, LOWEST, end, Limits(rows=HIGHEST, bytes=HIGHEST))
        self._limits = Limits(rows=max_rows, bytes=self._options.max_bytes_per_trigger)
        if self._ahead is not None:
            if not self._ahead_waited and (held := self._late_rows(start)) is not None:
                self._ahead_waited = True
                return held
            if (held := self._take_ahead(start)) is not None:
                return held
        after = self._head.next(self._clock())
        held = self._look(start, after, self._end, self._limits)
        # A bounded run ends only when the whole table has no row for it.
        if held is None and self._bounded and after != LOWEST:
            held = self._look(start, LOWEST, self._end, self._limits)
        if held is not None:
            held.mark(self._head)
        return held

    def _late_rows(self, start: Offset | None) -> F | None:
        """Rows below the last claim, when it is time to look for them."""
        ranges = self._head.late_rows(self._clock())
        took = 0.0
        for after, up_to in ranges:
            if (held := self._look(start, after, up_to, self._limits)) is not None:
                return held
            took += self._took
        if ranges:
            self._head.looked_from_start(self._clock(), took)
        return None

    def _look(self, start: Offset | None, after: int, up_to: int, limits: Limits) -> F | None:
        queue = self._pool.borrow()
        began = self._clock()  # not before: the time to make a connection is not part of the look
        try:
            held = self._find(queue, start, after, up_to, limits)
            self._took = self._clock() - began
            if held is not None and self._wants_to_know_who_waits():
                self._look_who_waits(queue, held.last)
            kept = held is not None and held.keeps_queue
            if not kept:
                queue.connection.rollback()
        except BaseException:
            queue.connection.close()
            raise
        if not kept:
            self._pool.give_back(queue)
        if after == LOWEST:
            self._head.looked_from_start(self._clock(), self._took)
        return held

    def _take_ahead(self, start: Offset | None) -> F | None:
        assert self._ahead is not None, "asked only where there is one"
        ahead, self._ahead = self._ahead, None
        self._ahead_waited = False
        held = ahead.take()
        if held is not None:
            held.follow(start)
            try:
                if self._wants_to_know_who_waits():
                    with self._pool.transaction() as queue:
                        self._look_who_waits(queue, held.last)
            except BaseException:
                held.release()
                raise
            held.mark(self._head)
        return held

    # -- looking around --------------------------------------------------------------------------

    def _wants_to_know_who_waits(self) -> bool:
        return self._clock() >= self._next_waiting

    def _look_who_waits(self, queue: Queue, last: int) -> None:
        self._next_waiting = self._clock() + self._options.poll_interval.total_seconds()
        seen = queue.waiting(last)
        if seen is None:
            self._waiting = _NOBODY
            return
        sent = time_sent(seen.headers)
        age = max(0, int((seen.now - sent).total_seconds())) if sent else None
        self._waiting = {"rows": seen.rows, "oldestSeconds": age}

    def _highest(self) -> int:
        with self._pool.transaction() as queue:
            highest = queue.highest()
        return LOWEST if highest is None else highest

    @property
    def _bounded(self) -> bool:
        """Whether this run ends at a row (``Trigger.AvailableNow``)."""
        return self._end != HIGHEST

    def _asked_to_stop(self) -> bool:
        return self._options.stop_file is not None and Path(self._options.stop_file).exists()
