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

from collections.abc import Callable, Sequence

from sqlqueue_spark import fail_points
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.receive.claiming.destructive_look import Looks
from sqlqueue_spark.receive.claiming.next_batch import NextBatch
from sqlqueue_spark.receive.holding.relock import say_not_taken_again
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.reading.first_reading import FirstReadings
from sqlqueue_spark.receive.reading.slices import Task, tasks_of
from sqlqueue_spark.receive.receiver import Receiver


class DestructiveReceiver(Receiver):
    """Plans the micro-batches of one stream; its workers take the rows."""

    _planned: NextBatch | None = None
    #: The batch whose tasks Spark has.
    _handed_out: Offset | None = None
    _finished: Offset | None = None

    def _batch_maker(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> Looks:
        self._looks = Looks(self._options, clock, sleep)
        self._readings = FirstReadings()
        return self._looks

    def latest(
        self,
        start: Offset | None,
        max_rows: int | None,
        *,
        sure: bool = True,  # noqa: ARG002 -- it has no stage
    ) -> Offset | None:
        """Look for the next rows and return their offset; ``start`` itself when there are none."""
        self._scanner.rest()
        return self._pool.retried(lambda: self._next(start, max_rows))

    def plan(self, start: Offset | None, end: Offset | None) -> Sequence[Task]:
        """The tasks of the batch that ends with ``end``.

        A batch that this process did not look for has none, unless it was begun in another mode: then its
        rows are locked again.

        :raises ConfigurationError: Spark has the tasks of this batch already.
        """
        if end is None or start == end:
            return []
        if self._planned is not None and self._planned.end == end:
            if self._handed_out == end:
                raise ConfigurationError(
                    f"The query reads {self._options.title} twice in one batch (a union or a join of the "
                    "stream with itself), but with transactionMode none a row has gone with its first "
                    "reading, so nothing is taken; read the stream once, or take transactionMode receiveOnly."
                )
            fail_points.step(fail_points.OFFSET_LOGGED)
            self._handed_out = end
            return tasks_of(self._planned.parts, self._options, self._readings.begin())
        self._pool.retried(lambda: self._check_belongs(end))
        if not end.taken:
            return self._batch.plan(start, end)
        self._planned = None
        say_not_taken_again(end)
        return []

    def finish(self, start: Offset | None, *, rows: bool) -> None:  # noqa: ARG002 -- it has no stage
        """Finish the last batch of a previous process if it was begun in another mode."""
        if start != self._finished:
            self._pool.retried(lambda: self._finish(start))
            self._finished = start

    def close(self) -> None:
        self._readings.close()
        super().close()

    def _next(self, start: Offset | None, max_rows: int | None) -> Offset | None:
        planned = self._planned
        if planned is not None and start == planned.start:
            return planned.end
        if start != self._finished and (planned is None or start != planned.end):
            self._finish(start)
        self._finished = start
        self._planned = self._scanner.next(start, max_rows)
        if self._planned is None:
            return start
        self._looks.note(self._planned)
        self._scanner.batch_runs(self._planned)
        return self._planned.end

    def _finish(self, start: Offset | None) -> None:
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
