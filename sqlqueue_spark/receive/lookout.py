"""Looks for the rows of a batch of mode ``none``, of which nothing is held: workers take what is still there."""

from __future__ import annotations

from dataclasses import dataclass

from sqlqueue_spark import plain_text
from sqlqueue_spark.options import NO_TRANSACTION
from sqlqueue_spark.receive.claim import Claimed, Limits, look
from sqlqueue_spark.receive.in_transit import Forwarder
from sqlqueue_spark.receive.offset import Offset, next_serial
from sqlqueue_spark.receive.poll_backoff import PollBackoff
from sqlqueue_spark.receive.scan_positions import Head
from sqlqueue_spark.row_set import LOWEST, RowSet
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
    def name(self) -> str:
        """The canonical name of the queue."""
        return self.table.name

    @property
    def parts(self) -> tuple[Planned]:
        return (self,)

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

    def note(self, planned: Planned) -> None:
        """Note that rows are planned: their batch is told to Spark."""
        self.planned_to = max(self.planned_to, planned.last)

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
