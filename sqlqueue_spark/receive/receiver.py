"""One stream's receiver: at most one claim a batch, held in one open transaction until Spark proves it done.

::

            latest: rows locked              latest(start = held) or settle(held)
    idle ──────────────────────▶ held ──────────────────────────────────────────▶ idle
     ▲                            │        DELETE the claim, COMMIT
     └── rollback: close(), connection lost, process gone

Spark may call twice, late or never: every method is harmless when repeated. The offset before the first batch
is None. In mode ``none`` no claim is made: see :mod:`sqlqueue_spark.receive.claiming.destructive_look`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlqueue_spark import plain_text
from sqlqueue_spark.options import NO_TRANSACTION, SourceOptions
from sqlqueue_spark.receive.claiming.claimed_batch import Claims
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool
from sqlqueue_spark.receive.claiming.destructive_look import Looks
from sqlqueue_spark.receive.claiming.next_batch import BatchMaker
from sqlqueue_spark.receive.claiming.stream_scanner import Scanner
from sqlqueue_spark.receive.holding.held_batch import HeldBatch
from sqlqueue_spark.receive.offset import Json, Offset
from sqlqueue_spark.receive.reading.slices import Task
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)


class Receiver:
    """Claims, plans and settles the micro-batches of one stream. It opens nothing until it is first asked."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        on_first_open: Callable[[Queue], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """:param on_first_open: is given each queue when the stream opens it for the first time."""
        self._options = options
        self._pool = ConnectionPool(options, on_first_open)
        takes = options.transaction_mode == NO_TRANSACTION
        self._maker: BatchMaker = Looks(options, clock, sleep) if takes else Claims(options, clock)
        self._scanner = Scanner(options, self._pool, self._maker, clock, sleep)
        self._batch = HeldBatch(options, self._pool, self._scanner)
        #: Whether the log has said that rows of a batch without limits stay in the queue; taken ones do not.
        self._told_of_everything = takes

    def latest(self, start: Offset | None, max_rows: int | None, *, sure: bool = True) -> Offset | None:
        """Settle what is held if ``start`` is its offset, then claim the next rows and return their offset.

        :param start: the last batch that Spark has logged as done.
        :param max_rows: most rows of the batch; None is everything that is there now.
        :param sure: whether Spark has said that ``start`` is that batch. Otherwise what is on the stage may
            belong to a later batch that is logged.
        :returns: ``start`` itself when there is nothing to claim; but in an atomic pipeline whose stage
            ``start`` does not name, an offset of no rows that names it.
        """
        self._scanner.rest()
        if max_rows is None and not self._told_of_everything:
            self._told_of_everything = True
            log.warning(
                "everything_at_once queue=%s: the trigger ignores every limit, and its rows stay in the "
                "queue until the stream is started again; take trigger(availableNow=True)",
                self._options.title,
            )
        with self._batch.lock:
            return self._pool.retried(lambda: self._latest(start, max_rows, sure=sure))

    def plan(self, start: Offset | None, end: Offset | None) -> Sequence[Task]:
        """The tasks of the batch that ends with ``end``; locks its rows again if they are not held here."""
        return [] if end is None or start == end else self._batch.plan(start, end)

    def finish(self, start: Offset | None, *, rows: bool) -> None:
        """Settle what is held if ``start`` is its offset; else give it back, and settle ``start``.

        What waits on a stage stays there: the batch that follows may have staged it, and may be running
        again.

        :param rows: whether the batch that follows has rows of this queue.
        """
        with self._batch.lock:
            self._pool.retried(lambda: self._batch.finish(start))
            if not rows:
                self._pool.retried(lambda: self._batch.staging.take(start))

    def settle(self, end: Offset | None) -> None:
        """Delete and commit the held claim if ``end`` is its offset."""
        self._batch.settle(end)

    def stop_at_present_end(self) -> None:
        """Receive nothing that arrives from now on (``Trigger.AvailableNow``)."""
        self._pool.retried(self._scanner.stop_at_present_end)

    def waiting(self) -> Json | None:
        """How many rows wait behind the present batch, and how old the oldest is, as last seen."""
        return self._scanner.waiting()

    def close(self) -> None:
        """Settle the held batch if ``doneFile`` says so, else give it back; then end the connections."""
        try:
            self._batch.close()
        finally:
            self._scanner.close()
            self._pool.close()

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
        self._maker.note(claimed)
        self._scanner.batch_runs(claimed)
        return claimed.end
