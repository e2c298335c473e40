"""Receiving in transaction mode ``none``: workers take rows with a delete that returns them, each at most once.

::

            latest: rows looked at             latest(start = planned)
    idle ───────────────────────────▶ planned ──────────────────────────▶ idle
                                         │
                                   workers take rows

Nothing is held between two calls: a row leaves the table when a worker takes it, before anybody knows whether its batch
will be done. A batch may not take all its rows, because others held them or because everything died. A later look finds
the rows that are left, and they come in a later batch. So an interrupted batch is not taken again. A batch that was begun
in another mode is finished in that mode.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlqueue_spark import fail_points, plain_text
from sqlqueue_spark.engines.connections import Target
from sqlqueue_spark.options import NO_TRANSACTION, SourceOptions
from sqlqueue_spark.receive.claim import Claimed, Limits, look
from sqlqueue_spark.receive.connection_pool import ConnectionPool
from sqlqueue_spark.receive.held_batch import HeldBatch
from sqlqueue_spark.receive.in_transit import Forwarder
from sqlqueue_spark.receive.offset import Json, Offset, next_serial
from sqlqueue_spark.receive.poll_backoff import PollBackoff
from sqlqueue_spark.receive.replay import say_not_taken_again
from sqlqueue_spark.receive.scan_positions import Head
from sqlqueue_spark.receive.scanner import Scanner
from sqlqueue_spark.receive.slices import JointSlice, Slice, plan_taking
from sqlqueue_spark.receive.stream_source import StreamSource
from sqlqueue_spark.row_set import LOWEST, RowSet
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.queues import Queue, QueueTable

log = plain_text.logger(__name__)


@dataclass
class Planned:
    """The rows of one batch as a look saw them. This stream holds none of them; rows that others hold stay in the table."""

    start: Offset | None
    end: Offset
    table: QueueTable
    rows: Claimed
    full: bool
    session: None = None

    @property
    def count(self) -> int:
        return self.rows.rows

    @property
    def last(self) -> int:
        return self.rows.live.last

    def follow(self, start: Offset | None) -> None:
        self.start, self.end = start, self.end.after(start)

    def mark(self, head: Head) -> None:
        head.passed(self.last)

    def release(self) -> None:
        """Do nothing: no row is held."""


class Lookout:
    """Looks for rows to plan. Rows that were planned before are planned again only when one of them has become free.

    If they were planned again already and the same rows are still left, they also wait for a pause: somebody may lock them
    and give them back again and again, and each time they would make an empty batch.
    """

    def __init__(self, pace: PollBackoff, forwarder: Forwarder) -> None:
        """:param pace: the pauses between two batches of the same rows."""
        self._forwarder = forwarder
        #: The highest row that was ever planned.
        self.planned_to = LOWEST
        #: Whether the run ends when no row is found. Then :meth:`find` sleeps in the pause and does not look for other rows.
        self.bounded = False
        self._pace = pace
        #: The rows that were planned again the last time.
        self._again = RowSet()

    def find(
        self, queue: Queue, start: Offset | None, after: int, up_to: int, limits: Limits
    ) -> Planned | None:
        rows = self._look(queue, after, up_to, limits)
        seen_before = rows.live and rows.live.first <= self.planned_to
        if seen_before and not self._plans_again(queue, after, up_to, rows.live):
            rows = self._look(queue, self.planned_to, up_to, limits)
        queue.connection.rollback()  # gives back the row that the claim in _plans_again may have locked
        if not rows.live:
            return None
        end = Offset(
            queue=queue.table.name,
            identity=queue.table.identity,
            live=rows.live,
            expired=rows.expired,
            mode=NO_TRANSACTION,
            serial=next_serial(start),
        )
        log.info("planned queue=%s rows=%d bytes=%d first=%d last=%d", queue.table.name, len(rows.live), rows.bytes,
                 rows.live.first, rows.live.last)  # fmt: skip
        return Planned(start, end, queue.table, rows, rows.full)

    def _look(self, queue: Queue, after: int, up_to: int, limits: Limits) -> Claimed:
        return self._forwarder.find(queue, lambda elsewhere: look(queue, after, up_to, limits, elsewhere))

    def _plans_again(self, queue: Queue, after: int, up_to: int, rows: RowSet) -> bool:
        """Whether rows that were planned before are planned once more now."""
        left = rows.between(rows.first, self.planned_to)
        if left != self._again:
            self._pace.found()  # not the same rows as the last time: some of those have come
        elif self.bounded:
            self._pace.wait()
        elif not self._pace.due:
            return False
        if queue.claim(after, min(up_to, self.planned_to), 1) is None:
            return False
        self._again = left
        self._pace.nothing_found()
        return True


class DestructiveReceiver(StreamSource):
    """Plans the micro-batches of one stream; its workers take the rows."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        on_first_open: Callable[[Queue], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._pool = ConnectionPool(options, on_first_open)
        self._lookout = Lookout(PollBackoff(options.poll_interval, clock, sleep), Forwarder(options, clock))
        self._scanner = Scanner(options, self._pool, self._lookout.find, clock, sleep)
        #: A batch that was begun in another mode.
        self._batch = HeldBatch(options, self._pool, self._scanner)
        self._planned: Planned | None = None
        self._finished: Offset | None = None

    def latest(self, start: Offset | None, max_rows: int | None, *, sure: bool = True) -> Offset | None:  # noqa: ARG002 -- it has no stage
        """Look for the next rows and return their offset; ``start`` itself when there are none."""
        self._scanner.rest()
        return self._pool.retried(lambda: self._latest(start, max_rows))

    def plan(self, start: Offset | None, end: Offset | None) -> Sequence[Slice | JointSlice]:
        """The slices of the batch that ends with ``end``.

        A batch that this process did not look for has none, unless it was begun in another mode: then its rows are locked
        again.
        """
        if end is None or start == end:
            return []
        if self._planned is not None and self._planned.end == end:
            fail_points.step(fail_points.OFFSET_LOGGED)
            return self._slices(self._planned)
        self._pool.retried(lambda: self._check_belongs(end))
        if not end.taken:
            return self._batch.plan(start, end)
        self._planned = None
        say_not_taken_again(end)
        return []

    def finish(self, start: Offset | None, *, rows: bool) -> None:  # noqa: ARG002 -- it has no stage
        """Finish the last batch of a previous process if it was begun in another mode; else leave it as it is."""
        if start != self._finished:
            self._pool.retried(lambda: self._finish(start))
            self._finished = start

    def settle(self, end: Offset | None) -> None:
        """Settle a batch that was begun in another mode; a batch of mode ``none`` needs nothing."""
        self._batch.settle(end)

    def stop_at_present_end(self) -> None:
        self._pool.retried(self._scanner.stop_at_present_end)
        self._lookout.bounded = True

    def waiting(self) -> Json | None:
        return self._scanner.waiting()

    def close(self) -> None:
        """Give back the rows that are held for a batch of another mode, and end the connections."""
        try:
            self._batch.close()
        finally:
            self._scanner.close()
            self._pool.close()

    # -- steps of the protocol ------------------------------------------------------------------

    def _latest(self, start: Offset | None, max_rows: int | None) -> Offset | None:
        planned = self._planned
        if planned is not None and start == planned.start:
            return planned.end
        if start != self._finished and (planned is None or start != planned.end):
            self._finish(start)
        self._finished = start
        self._planned = self._scanner.next(start, max_rows)
        if self._planned is None:
            return start
        self._lookout.planned_to = max(self._lookout.planned_to, self._planned.last)
        self._scanner.claim_ahead(self._planned)
        return self._planned.end

    def _finish(self, start: Offset | None) -> None:
        """Finish a batch of a previous process if it was begun in another mode; else leave it as it is."""
        if start is None:
            return
        self._check_belongs(start)
        if not start.taken:
            with self._batch.lock:
                self._batch.finish(start)
                self._batch.staging.tidy(start)
            self._batch.close()

    def _check_belongs(self, end: Offset) -> None:
        with self._pool.transaction() as session:
            self._pool.check_belongs(end, session)

    def _slices(self, planned: Planned) -> Sequence[Slice | JointSlice]:
        dialect = Target.of(self._options).dialect
        statement = queues.read_statement(dialect, planned.table, "take", planned.rows.kept_in_transit)
        pieces = self._options.slices(len(planned.rows.live))
        return plan_taking(statement, planned.table.name, planned.rows, pieces, dialect.chunk)
