"""Looks for the rows of a batch of mode ``none``: workers take them with a delete that returns them.

::

            latest: rows looked at             latest(start = planned)
    idle ───────────────────────────▶ planned ──────────────────────────▶ idle
                                         │
                                   workers take rows

Nothing is held between two calls. A row leaves the table when a worker takes it, before it is known whether
its batch will be done. A batch may not take all its rows, because other consumers held them or because the
process died. A later look finds the rows that are left, and they come in a later batch. So an interrupted
batch is not taken again. A batch that was begun in another mode is finished in that mode. A batch that is
read twice fails: its rows have gone with the first reading.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sqlqueue_spark import plain_text
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits
from sqlqueue_spark.receive.claiming.claim import QueueRows, gather
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.next_batch import BatchMaker, NextBatch
from sqlqueue_spark.receive.claiming.poll_backoff import PollBackoff
from sqlqueue_spark.receive.offset import Offset, batch_offset
from sqlqueue_spark.row_set import LOWEST, RowSet
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)


#: A run with an end plans the same rows this number of times: others may hold them each time they are taken.
_MOST_TIMES = 100


@dataclass
class _Planned:
    #: The pauses between two batches of the same rows.
    pace: PollBackoff
    #: The highest row that was ever planned.
    to: int = LOWEST
    #: The rows that were planned again the last time, and how many times running.
    again: RowSet = field(default_factory=RowSet)
    times: int = 0


class Looks(BatchMaker):
    """Looks at each queue, one after the other. Rows that others hold stay in the table.

    Rows that were planned before are planned again only when one has become free. If they were planned again
    already and the same rows are still left, they also wait for a pause. Another receiver may lock rows and
    give them back again and again, and each time they would make an empty batch.
    """

    def __init__(
        self, options: SourceOptions, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        super().__init__(options, clock)
        self._planned: dict[Table, _Planned] = defaultdict(
            lambda: _Planned(PollBackoff(options.poll_interval, clock, sleep))
        )

    def find(self, queue: Queue, after: int, up_to: int, limits: BatchLimits) -> QueueRows | None:
        planned = self._planned[queue.table.table]
        rows = self._look(queue, after, up_to, limits)
        seen_before = rows.live and rows.live.first <= planned.to
        if seen_before and not self._plans_again(planned, queue, after, up_to, rows.live):
            rows = self._look(queue, planned.to, up_to, limits)
        queue.connection.rollback()  # gives back the row that the claim in _plans_again may have locked
        if not rows.live:
            return None
        log.info("planned queue=%s rows=%d bytes=%d first=%d last=%d", queue.name, len(rows.live), rows.bytes,
                 rows.live.first, rows.live.last)  # fmt: skip
        rows.locked = False
        return rows

    def make(
        self, session: QueueSession, start: Offset | None, turn: Callable[..., list[QueueRows]]
    ) -> NextBatch | None:
        parts = turn()
        session.rollback()
        if not parts:
            return None
        rows = [part.offset(part.queue.table.identity) for part in parts]
        return NextBatch(start, batch_offset(start, rows, self._options), parts)

    def note(self, batch: NextBatch) -> None:
        for part in batch.parts:
            planned = self._planned[part.queue.table.table]
            planned.to = max(planned.to, part.last)

    def _look(self, queue: Queue, after: int, up_to: int, limits: BatchLimits) -> QueueRows:
        looked = partial(gather, queue, queue.look, after, up_to, limits)
        return self.forwarder.find(queue, lambda elsewhere: looked(elsewhere=elsewhere))

    def _plans_again(self, planned: _Planned, queue: Queue, after: int, up_to: int, rows: RowSet) -> bool:
        """Whether rows that were planned before are planned once more now."""
        left = rows.between(rows.first, planned.to)
        if left != planned.again:
            planned.pace.found()  # not the same rows as the last time: some of those have come
            planned.times = 0
        elif self.bounded:  # the run ends when no row is found
            planned.pace.wait()
        elif not planned.pace.due:
            return False
        if (free := queue.claim(after, min(up_to, planned.to), 1)) is None:
            return False
        if left == planned.again and queue.delete(RowSet.of(free[0])) != 1:  # it is rolled back
            raise QueueError(
                f"The row with RowVersion {free[0][0]} of {queue.table.name} is free, but a delete leaves it "
                "there: a trigger, a rule or a policy keeps rows; mend the table."
            )
        planned.again, planned.times = left, planned.times + 1
        if self.bounded and planned.times >= _MOST_TIMES:
            raise QueueError(
                f"{len(left)} free rows of {queue.table.name} were planned {_MOST_TIMES} times, and no task "
                "took one: the query does not read its batch. Let it read what foreachBatch gives it, or "
                "take transactionMode receiveOnly."
            )
        planned.pace.nothing_found()
        return True
