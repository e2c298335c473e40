"""One stream's receiver: at most one claim a batch, held in one open transaction until Spark proves it done.

::

            latest: rows locked              latest(start = held) or settle(held)
    idle ──────────────────────▶ held ──────────────────────────────────────────▶ idle
     ▲                            │        DELETE the claim, COMMIT
     └── rollback: close(), connection lost, process gone

Spark may call twice, late or never; every method here is harmless when repeated.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sqlqueue_spark import fail_points
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, SqlQueueError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claim import Claimed
from sqlqueue_spark.receive.connection_pool import ConnectionPool
from sqlqueue_spark.receive.done_file import DoneFile
from sqlqueue_spark.receive.held_claim import HeldClaim, Settling, hold, may_go_away
from sqlqueue_spark.receive.offset import INITIAL, Json, Offset
from sqlqueue_spark.receive.replay import check_belongs, relock, say_not_taken_again
from sqlqueue_spark.receive.scanner import Scanner
from sqlqueue_spark.receive.slices import Slice, plan
from sqlqueue_spark.receive.stage_lifecycle import StageLifecycle, stage_of
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.queues import Queue

log = logging.getLogger(__name__)


class Receiver:
    """Claims, plans and settles the micro-batches of one stream. Opens nothing until it is first asked.

    Two threads use it, one at a time: Spark's thread asks, and the thread that watches ``doneFile`` settles.
    """

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
        self._staging = StageLifecycle(options, self._pool)
        stage = stage_of(options)
        find = hold if stage is None else functools.partial(hold, stage=stage.to_text())
        self._scanner = Scanner(options, self._pool, find, clock, sleep)
        self._held: HeldClaim | None = None
        self._settled: Json = INITIAL
        self._lock = threading.RLock()
        self._done_file = (
            None if options.done_file is None else DoneFile(Path(options.done_file), self.settle)
        )
        self._told_of_everything = False

    def latest(self, start: Json, max_rows: int | None, *, sure: bool = True) -> Json:
        """Settle what is held if ``start`` is its offset, then claim the next rows and return their offset.

        :param start: the last batch that Spark has logged as done.
        :param max_rows: most rows to claim; None is everything that is there now.
        :param sure: whether Spark has said that ``start`` is that batch. Else what is on the stage may belong to a later
            batch that is logged.
        :returns: ``start`` itself when there is nothing to claim; but in an atomic pipeline whose stage ``start`` does not
            name, an offset of no rows that names it.
        """
        self._scanner.rest()
        if max_rows is None and not self._told_of_everything:
            self._told_of_everything = True
            log.warning("everything_at_once queue=%s: the trigger ignores every limit, and its rows stay in the queue until the "
                        "stream is started again; take trigger(availableNow=True)", self._options.queue)  # fmt: skip
        with self._lock:
            return self._pool.retried(lambda: self._latest(start, max_rows, sure=sure))

    def plan(self, start: Json, end: Json) -> list[Slice]:
        """The slices of the batch that ends with ``end``; locks its rows again if this process never held it."""
        if start == end:
            return []
        with self._lock:
            return self._plan(start, end)

    def settle(self, end: Json) -> None:
        """Delete and commit the held claim if ``end`` is its offset. Calling again is harmless."""
        with self._lock:
            if self._held is not None and self._held.end == end:
                self._pool.retried(self._settle)
                self._scanner.batch_done()

    def finish(self, start: Json, *, rows: bool) -> None:
        """Settle what is held if ``start`` is its offset; else give it back, and settle what a previous process left of
        the batch that ends with ``start``.

        What waits on a stage stays there: the batch that follows may have staged it, and may be running again.

        :param rows: whether the batch that follows has rows of this queue.
        """
        with self._lock:
            self._pool.retried(lambda: self._finish(start))
            if not rows:
                self._pool.retried(self._staging.take)

    def tidy(self, start: Json) -> None:
        """Send what batches without rows of this queue have left on a stage. Call it when ``start`` is settled."""
        with self._lock:
            self._pool.retried(lambda: self._staging.tidy(start))

    def stop_at_present_end(self) -> None:
        """Claim nothing that arrives from now on (``Trigger.AvailableNow``)."""
        self._pool.retried(self._scanner.stop_at_present_end)

    def waiting(self) -> Json | None:
        """How many rows wait behind the present batch and how old the oldest is, as last seen; asks no database."""
        return self._scanner.waiting()

    def close(self) -> None:
        """Settle the held batch if ``doneFile`` says that it is logged, else give it back; then end the connections."""
        if self._done_file is not None:
            self._done_file.close()
        with self._lock:
            try:
                if self._done_file is not None and self._held is not None:
                    self._done_file.look()
            except SqlQueueError as error:  # the next start settles it
                log.warning("not_settled queue=%s: %s", self._options.queue, error)
            finally:
                self._release()
                self._staging.close()
                self._pool.close()

    # -- steps of the protocol ------------------------------------------------------------------

    def _latest(self, start: Json, max_rows: int | None, *, sure: bool) -> Json:
        held = self._held
        if held is not None and start == held.start and not held.lost:
            return held.end
        self._finish(start)
        if sure and self._scanner.due:  # an idle stream looks at its stage as often as at its queue
            self._staging.tidy(start)
        self._staging.hold()
        self._held = self._scanner.next(start, max_rows)
        if self._held is None:
            return self._staging.named_after(start)
        fail_points.step(fail_points.ROWS_LOCKED)
        self._scanner.claim_ahead(self._held)
        return self._held.end

    def _finish(self, start: Json) -> None:
        if self._held is not None:
            if start == self._held.end:
                self._settle()
            else:
                self._release()
        if start != self._settled:
            self._recover(start)

    def _settle(self) -> None:
        """Settle the held claim, as its batch is logged. If its transaction is gone, lock and settle what is left of it."""
        held = self._held
        assert held is not None, "only what is held is settled"
        if held.lost:
            held = self._held = held.locked_again(*self._lock_left(held.left))
        try:
            held.settle(
                lambda: self._staging.send(held.queue, held.offset, held.end, deleting=held.rows.rows)
            )
        except ConnectionLost as error:
            log.warning("claim_lost queue=%s rows=%d: %s", held.queue.table.name, held.rows.rows, error)
            held.release()
            self._scanner.look_from_start_next()
            raise
        except SqlQueueError as error:
            held.release()
            if may_go_away(error):
                raise self._gave_up(held, error) from error
            raise
        self._pool.give_back(held.queue)
        self._held, self._settled = None, held.end
        self._staging.settled()
        held.say_settled()

    def _gave_up(self, held: HeldClaim, error: SqlQueueError) -> SqlQueueError:
        kind = next(
            (each for each in (QueueError, ConfigurationError) if isinstance(error, each)), SqlQueueError
        )
        seconds = round(self._options.command_timeout.total_seconds())
        return kind(
            f"The last batch of {held.queue.table.name} is done but could not be settled within commandTimeout ({seconds} s): "
            f"{error} Its {held.rows.rows} rows are free again; remove the cause and start the stream, which settles them "
            "first: what another consumer takes before that is processed by both."
        )

    def _recover(self, start: Json) -> None:
        """Settle what is left of a batch that a previous process finished but did not live to settle."""
        offset = Offset.from_json(start)
        if offset is None:
            self._settled = start
            return
        queue, rows = self._lock_left(offset)
        self._held = HeldClaim(queue, {}, start, offset, rows, settling=Settling.THE_NEXT_PROCESS)
        self._settle()

    def _plan(self, start: Json, end: Json) -> list[Slice]:
        if self._held is None or self._held.end != end:
            self._pool.retried(lambda: self._replay(start, end))
        held = self._held
        assert held is not None, "a batch that is planned is held"
        if self._done_file is not None:
            self._done_file.watch()
        fail_points.step(fail_points.OFFSET_LOGGED)
        self._pool.retried(lambda: self._staging.open(start, held.offset, end))
        pieces = self._options.slices(len(held.rows.live))
        dialect = held.queue.connection.dialect
        statement = queues.read_statement(dialect, held.queue.table)
        name, witnesses = held.queue.table.name, held.offset.witnesses
        return plan(statement, name, held.rows, pieces, dialect.small_row, witnesses=witnesses)

    def _replay(self, start: Json, end: Json) -> None:
        """Lock what is left of an unfinished batch again, and hold it."""
        self._release()
        offset = Offset.from_json(end)
        assert offset is not None, "the first offset ends no batch"
        queue, rows = self._lock_left(offset)
        if offset.taken:
            say_not_taken_again(offset)
        elif offset.claimed:
            log.warning("replaying queue=%s rows=%d taken_by_others=%d", queue.table.name, len(rows.live),
                        len(offset.live) - len(rows.live))  # fmt: skip
        self._held = HeldClaim(queue, start, end, offset, rows)

    def _lock_left(self, offset: Offset) -> tuple[Queue, Claimed]:
        """Lock what is left of a batch.

        :returns: the queue whose open transaction holds these rows, and the rows: none where these are other rows.
        """
        queue = self._pool.borrow()
        try:
            check_belongs(offset, queue)
            rows = relock(queue, offset)
            if rows is None:
                queue.connection.rollback()
        except BaseException:
            queue.connection.close()
            raise
        return queue, Claimed() if rows is None else rows

    def _release(self) -> None:
        """Give back to everybody what is held, and what was claimed ahead."""
        self._scanner.give_up_ahead()
        self._staging.forget()
        if self._held is not None:
            self._held.release()
            self._held = None
            self._scanner.look_from_start_next()
