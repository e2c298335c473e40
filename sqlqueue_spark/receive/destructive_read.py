"""Receiving in mode ``none``: workers take rows with a delete that returns them, each at most once.

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

from __future__ import annotations

from collections.abc import Callable

from sqlqueue_spark.receive.claiming.destructive_look import Looks
from sqlqueue_spark.receive.claiming.next_batch import NextBatch
from sqlqueue_spark.receive.receiver import Receiver


class DestructiveReceiver(Receiver):
    """Plans the micro-batches of one stream; its workers take the rows."""

    _told_of_everything = True  # no row stays

    def _batch_maker(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> Looks:
        self._looks = Looks(self._options, clock, sleep)
        return self._looks

    def _hold(self, claimed: NextBatch) -> None:
        self._batch.hold(claimed)
        self._looks.note(claimed)
