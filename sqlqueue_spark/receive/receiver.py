"""One stream's receiver: at most one claim a batch, held in one open transaction until Spark proves it done.

::

            latest: rows locked              latest(start = held) or settle(held)
    idle ──────────────────────▶ held ──────────────────────────────────────────▶ idle
     ▲                            │        DELETE the claim, COMMIT
     └── rollback: close(), connection lost, process gone

Spark may call twice, late or never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlqueue_spark import fail_points, plain_text
from sqlqueue_spark.receive.claiming.claimed_batch import Claims
from sqlqueue_spark.receive.holding.stage_dispatch import stage_of
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.reading.slices import Task
from sqlqueue_spark.receive.stream_source import StreamSource

log = plain_text.logger(__name__)


class Receiver(StreamSource):
    """Claims, plans and settles the micro-batches of one stream."""

    _told_of_everything = False

    def _batch_maker(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> Claims:  # noqa: ARG002 -- as its base
        stage = stage_of(self._options)
        return Claims(self._options, "" if stage is None else stage.to_text(), clock)

    def latest(self, start: Offset | None, max_rows: int | None, *, sure: bool = True) -> Offset | None:
        """Settle what is held if ``start`` is its offset, then claim the next rows and return their offset.

        :returns: ``start`` itself when there is nothing to claim; but in an atomic pipeline whose stage
            ``start`` does not name, an offset of no rows that names it.
        """
        self._scanner.rest()
        if max_rows is None and not self._told_of_everything:
            self._told_of_everything = True
            log.warning(
                "everything_at_once queue=%s: the trigger ignores every limit, and its rows stay in the queue until the "
                "stream is started again; take trigger(availableNow=True)",
                self._options.title,
            )
        with self._batch.lock:
            return self._pool.retried(lambda: self._latest(start, max_rows, sure=sure))

    def plan(self, start: Offset | None, end: Offset | None) -> Sequence[Task]:
        return [] if end is None or start == end else self._batch.plan(start, end)

    def finish(self, start: Offset | None, *, rows: bool) -> None:
        """Settle what is held if ``start`` is its offset; else give it back, and settle what a process before
        has left.

        What waits on a stage stays there: the batch that follows may have staged it, and may be running
        again.
        """
        with self._batch.lock:
            self._pool.retried(lambda: self._batch.finish(start))
            if not rows:
                self._pool.retried(lambda: self._batch.staging.take(start))

    def _latest(self, start: Offset | None, max_rows: int | None, *, sure: bool) -> Offset | None:
        if (end := self._batch.claimed_after(start)) is not None:
            return end
        self._batch.finish(start)
        if sure and self._scanner.due:  # an idle stream looks at its stage as often as at its queue
            self._batch.staging.tidy(start)
        self._batch.staging.hold()
        claimed = self._scanner.next(start, max_rows)
        if claimed is None:
            return self._batch.staging.named_after(start)
        self._batch.hold(claimed)
        fail_points.step(fail_points.ROWS_LOCKED)
        self._scanner.claim_ahead(claimed)
        return claimed.end
