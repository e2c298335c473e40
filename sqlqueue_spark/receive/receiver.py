"""One stream's receiver: at most one claim a batch, held in one open transaction until Spark proves it done.

::

            latest: rows locked              latest(start = held) or settle(held)
    idle ──────────────────────▶ held ──────────────────────────────────────────▶ idle
     ▲                            │        DELETE the claim, COMMIT
     └── rollback: close(), connection lost, process gone

Spark may call twice, late or never; every method here is harmless when repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import stamina

from sqlqueue_spark import faults, queues
from sqlqueue_spark.claims import HIGHEST, LOWEST
from sqlqueue_spark.errors import RowsHeld, TryAgain
from sqlqueue_spark.messages import time_sent
from sqlqueue_spark.offsets import INITIAL, Offset
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.queues import Queue
from sqlqueue_spark.receive.ahead import Ahead, worthwhile
from sqlqueue_spark.receive.claiming import Claimed, Head, Limits
from sqlqueue_spark.receive.held import Held, Json, hold
from sqlqueue_spark.receive.pool import Pool
from sqlqueue_spark.receive.relocking import check_belongs, delete, relock
from sqlqueue_spark.receive.slices import Slice, plan

log = logging.getLogger(__name__)

T = TypeVar("T")

#: A database that is restarted or fails over is back within this, or the stream fails.
_RETRY_SECONDS = 60.0
_FIRST_PAUSE = 0.05
#: Longest sleep inside one call, so that stopping the stream is not held up.
_LONGEST_SLEEP = 0.25


class Receiver:
    """Claims, plans and settles the micro-batches of one stream. Opens nothing until it is first asked."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        on_first_open: Callable[[Queue], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._pool = Pool(options, on_first_open)
        self._held: Held | None = None
        self._ahead: Ahead | None = None
        self._settled: Json = INITIAL
        self._head = Head()
        self._limits = Limits(rows=options.max_messages_per_trigger, bytes=options.max_bytes_per_trigger)
        #: No row above this one is claimed.
        self._end = HIGHEST
        self._empty_looks = 0
        self._next_look = 0.0
        self._waiting: Json | None = None
        self._next_waiting = 0.0

    def latest(self, start: Json, max_rows: int | None) -> Json:
        """Settle what is held if ``start`` is its offset, then claim the next rows and return their offset.

        :param start: the last batch that Spark has logged as done.
        :param max_rows: most rows to claim; None is everything that is there now.
        :returns: ``start`` itself when there is nothing to claim.
        """
        pause = self._next_look - self._clock()
        if pause > 0:
            self._sleep(min(pause, _LONGEST_SLEEP))
        return self._retried(lambda: self._latest(start, max_rows))

    def plan(self, start: Json, end: Json) -> list[Slice]:
        """The slices of the batch that ends with ``end``; locks its rows again if this process never held it."""
        if start == end:
            return []
        if self._held is None or self._held.end != end:
            self._retried(lambda: self._replay(start, end))
        held = self._held
        assert held is not None, "a batch that is planned is held"
        faults.step(faults.OFFSET_LOGGED)
        pieces = min(
            self._options.max_concurrency, len(held.rows.live) // self._options.min_messages_per_partition
        )
        statement = queues.read_statement(held.queue.connection.dialect, held.queue.table)
        return plan(statement, held.queue.table.name, held.rows, max(1, pieces))

    def settle(self, end: Json) -> None:
        """Delete and commit the held claim if ``end`` is its offset. Calling again is harmless."""
        if self._held is not None and self._held.end == end:
            self._retried(self._settle)

    def stop_at_present_end(self) -> None:
        """Claim nothing that arrives from now on (``Trigger.AvailableNow``)."""
        self._end = self._retried(self._highest)

    def waiting(self) -> Json | None:
        """How many rows wait behind the present batch and how old the oldest is, as last seen; asks nobody."""
        return self._waiting

    def close(self) -> None:
        """Give back what is held and end the connections."""
        self._release()
        self._pool.close()

    # -- steps of the protocol ------------------------------------------------------------------

    def _latest(self, start: Json, max_rows: int | None) -> Json:
        if self._held is not None:
            if start == self._held.end:
                self._settle()
            elif start == self._held.start and not self._held.lost:
                return self._held.end
            else:
                self._release()
        if start != self._settled:
            self._recover(start)
        if self._asked_to_stop():
            self._give_up_ahead()
            return start
        if self._clock() < self._next_look:
            return start
        self._held = self._next(start, max_rows)
        if self._held is None:
            self._rest()
            return start
        self._empty_looks, self._next_look = 0, 0.0
        faults.step(faults.ROWS_LOCKED)
        if self._options.claim_ahead and self._ahead is None and worthwhile(self._held, self._end):
            self._ahead = Ahead(self._pool, self._held, self._end, self._limits)
        return self._held.end

    def _next(self, start: Json, max_rows: int | None) -> Held | None:
        """The next claim: late rows from below when it is time to look, else the one made ahead, else a new one."""
        if max_rows is None:
            self._give_up_ahead()
            end = self._end if self._bounded else self._highest()
            return self._look(start, LOWEST, end, Limits(rows=HIGHEST, bytes=HIGHEST))
        self._limits = Limits(rows=max_rows, bytes=self._options.max_bytes_per_trigger)
        if self._ahead is not None:
            if (held := self._late_rows(start)) is not None:
                return held
            if (held := self._take_ahead(start)) is not None:
                return held
        after = self._head.next(self._clock())
        held = self._look(start, after, self._end, self._limits)
        if held is None and self._bounded and after != LOWEST:  # a bounded run ends at the end of the table
            held = self._look(start, LOWEST, self._end, self._limits)
        if held is not None:
            self._head.claimed(held.rows)
        return held

    def _late_rows(self, start: Json) -> Held | None:
        """Rows below the last claim, when it is time to look for them."""
        began = self._clock()
        ranges = self._head.late_rows(began)
        for after, up_to in ranges:
            if (held := self._look(start, after, up_to, self._limits)) is not None:
                return held
        if ranges:
            self._head.looked_from_start(self._clock(), self._clock() - began)
        return None

    def _look(self, start: Json, after: int, up_to: int, limits: Limits) -> Held | None:
        began = self._clock()
        queue = self._pool.borrow()
        try:
            held = hold(queue, start, after, up_to, limits)
            if held is not None:
                self._look_who_waits(held)
        except BaseException:
            queue.connection.close()
            raise
        if held is None:
            self._pool.give_back(queue)
        if after == LOWEST:
            self._head.looked_from_start(self._clock(), self._clock() - began)
        return held

    def _take_ahead(self, start: Json) -> Held | None:
        assert self._ahead is not None, "asked only where there is one"
        ahead, self._ahead = self._ahead, None
        held = ahead.take()
        if held is not None:
            held.start = start
            try:
                self._look_who_waits(held)
            except BaseException:
                held.release()
                raise
            self._head.claimed(held.rows)
        return held

    def _settle(self) -> None:
        held = self._held
        assert held is not None, "only what is held is settled"
        if not held.lost:
            try:
                held.settle()
                self._pool.give_back(held.queue)
            except TryAgain as error:
                log.warning("claim_lost queue=%s rows=%d: %s", held.queue.table.name, held.rows.rows, error)
                held.release()
                self._pool.close()  # the others have most likely died too
        if held.lost:
            self._head.look_from_start_next()
            with self._pool.transaction() as queue:
                held.settle_again(queue)
        self._held, self._settled = None, held.end

    def _recover(self, start: Json) -> None:
        """Delete what is left of a batch that a previous process finished but did not live to delete."""
        offset = Offset.from_json(start)
        if offset is not None:
            with self._pool.transaction() as queue:
                check_belongs(offset, queue)
                left = relock(queue, offset)
                if left is not None and left.rows:
                    delete(queue, left)
                    log.warning("recovered queue=%s deleted=%d: rows of the last logged batch that a stopped process "
                                "had processed but not deleted", queue.table.name, left.rows)  # fmt: skip
        self._settled = start

    def _replay(self, start: Json, end: Json) -> None:
        """Hold the rows of an unfinished batch again, those that are left."""
        self._release()
        offset = Offset.from_json(end)
        assert offset is not None, "the first offset ends no batch"
        queue = self._pool.borrow()
        try:
            check_belongs(offset, queue)
            rows = relock(queue, offset)
            if rows is None:
                queue.connection.rollback()
                rows = Claimed()
        except BaseException:
            queue.connection.close()
            raise
        log.warning("replaying queue=%s rows=%d taken_by_others=%d", queue.table.name, len(rows.live),
                    len(offset.live) - len(rows.live))  # fmt: skip
        self._held = Held(queue, start, end, offset, rows)

    def _release(self) -> None:
        """Give back to everybody what is held, and what was claimed ahead."""
        self._give_up_ahead()
        if self._held is not None:
            self._held.release()
            self._held = None
            self._head.look_from_start_next()

    def _give_up_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.give_up()
            self._ahead = None

    # -- looking around -------------------------------------------------------------------------

    def _highest(self) -> int:
        with self._pool.transaction() as queue:
            highest = queue.highest()
        return LOWEST if highest is None else highest

    def _look_who_waits(self, held: Held) -> None:
        if self._clock() < self._next_waiting:
            return
        self._next_waiting = self._clock() + self._options.poll_interval.total_seconds()
        seen = held.queue.waiting(held.last)
        if seen is None:
            self._waiting = {"rows": 0, "oldestSeconds": 0}
            return
        sent = time_sent(seen.headers)
        age = max(0, int((seen.now - sent).total_seconds())) if sent else None
        self._waiting = {"rows": seen.rows, "oldestSeconds": age}

    def _rest(self) -> None:
        """Nothing was there: look again after a pause that doubles up to ``pollInterval``."""
        longest = self._options.poll_interval.total_seconds()
        pause = min(longest, _FIRST_PAUSE * 2 ** min(self._empty_looks, 30))
        self._empty_looks += 1
        self._next_look = self._clock() + (0 if self._bounded else pause)
        self._waiting = {"rows": 0, "oldestSeconds": 0}

    @property
    def _bounded(self) -> bool:
        """Whether this run ends at a row (``Trigger.AvailableNow``)."""
        return self._end != HIGHEST

    def _asked_to_stop(self) -> bool:
        return self._options.stop_file is not None and Path(self._options.stop_file).exists()

    def _retried(self, action: Callable[[], T]) -> T:
        """Run a step; when the database gives way, again on a new connection, within a limit."""

        def worth_it(error: Exception) -> bool:
            return (
                isinstance(error, TryAgain) and not isinstance(error, RowsHeld) and self._pool.opened_before
            )

        for attempt in stamina.retry_context(
            on=worth_it, attempts=None, timeout=_RETRY_SECONDS, wait_max=5.0
        ):
            with attempt:
                try:
                    return action()
                except TryAgain:
                    self._pool.close()  # the others have most likely died too
                    raise
        raise AssertionError("unreachable: retry_context ends by return or raise")
