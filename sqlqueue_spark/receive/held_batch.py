"""The batch whose rows a stream holds: planned, settled, given back, or locked again after a loss or a restart."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from sqlqueue_spark import fail_points, plain_text
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, SqlQueueError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claim import Claimed
from sqlqueue_spark.receive.connection_pool import ConnectionPool
from sqlqueue_spark.receive.done_file import DoneFile
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.open_claim import OpenClaim, Settling, may_go_away
from sqlqueue_spark.receive.replay import check_belongs, relock, say_not_taken_again
from sqlqueue_spark.receive.scanner import Scanner
from sqlqueue_spark.receive.slices import Slice, plan
from sqlqueue_spark.receive.stage_dispatch import StageDispatch
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)


class HeldBatch:
    """Holds at most one claim at a time, whichever process made it first, until its batch is settled or given back.

    Two threads use it, one at a time: Spark's thread, and the thread that watches ``doneFile`` and settles. Take ``lock``
    for whatever must not be settled in between.
    """

    def __init__(self, options: SourceOptions, pool: ConnectionPool, scanner: Scanner[Any]) -> None:
        self._options = options
        self._pool = pool
        self._scanner = scanner
        self._held: OpenClaim | None = None
        self._settled: Offset | None = None
        self._done_file = (
            None if options.done_file is None else DoneFile(Path(options.done_file), self.settle)
        )
        self.staging = StageDispatch(options, pool)
        self.lock = threading.RLock()

    def hold(self, claim: OpenClaim) -> None:
        """Hold a claim that was just made; the one before is settled."""
        self._held = claim

    def claimed_after(self, start: Offset | None) -> Offset | None:
        """The offset of the batch that was claimed after ``start`` and is held; None where there is none."""
        held = self._held
        return held.end if held is not None and held.follows(start) else None

    def finish(self, start: Offset | None) -> None:
        """Settle what is held if ``start`` is its offset; else give it back, and settle what a previous process left of
        the batch that ends with ``start``.
        """
        if self._held is not None:
            if start == self._held.end:
                self._settle()
            else:
                self._release()
        if start is not None and start != self._settled:
            queue, rows = self._lock(start, start.live, start.expired)
            self._held = OpenClaim(queue, None, start, rows, settling=Settling.THE_NEXT_PROCESS)
            self._settle()

    def plan(self, start: Offset | None, end: Offset) -> list[Slice]:
        """The slices of the batch that ends with ``end``; locks its rows again if this process does not hold them."""
        with self.lock:
            if self._held is None or self._held.end != end:
                self._pool.retried(lambda: self._replay(start, end))
            held = self._held
            assert held is not None, "a batch that is planned is held"
            if self._done_file is not None:
                self._done_file.watch()
            fail_points.step(fail_points.OFFSET_LOGGED)
            self._pool.retried(lambda: self.staging.open(start, end))
            table, dialect = held.queue.table, held.queue.connection.dialect
            return plan(
                queues.read_statement(dialect, table),
                table.name,
                held.rows,
                self._options.slices(len(held.rows.live)),
                dialect.small_row,
                witnesses=end.witnesses,
            )

    def settle(self, end: Offset | None) -> None:
        """Delete and commit the held claim if ``end`` is its offset. Calling again is harmless."""
        with self.lock:
            if self._held is not None and self._held.end == end:
                self._pool.retried(self._settle)
                self._scanner.batch_done()

    def close(self) -> None:
        """Settle the held batch if ``doneFile`` says that it is logged, else give it back; then let go of the stage."""
        if self._done_file is not None:
            self._done_file.close()
        with self.lock:
            try:
                if self._done_file is not None and self._held is not None:
                    self._done_file.look()
            except SqlQueueError as error:  # the next start settles it
                log.warning("not_settled queue=%s: %s", self._options.queue, error)
            finally:
                self._release()
                self.staging.close()

    # -- steps ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Settle the held claim, as its batch is logged. If its transaction is gone, lock and settle what is left of it."""
        held = self._held
        assert held is not None, "only what is held is settled"
        if held.lost:
            held = self._held = held.locked_again(*self._lock(held.end, held.rows.live, held.rows.expired))
        try:
            held.settle(lambda: self.staging.send(held.queue, held.end, deleting=held.rows.rows))
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
        self.staging.settled()
        held.say_settled()

    def _gave_up(self, held: OpenClaim, error: SqlQueueError) -> SqlQueueError:
        kind = next(
            (each for each in (QueueError, ConfigurationError) if isinstance(error, each)), SqlQueueError
        )
        seconds = round(self._options.command_timeout.total_seconds())
        return kind(
            f"The last batch of {held.queue.table.name} is done but could not be settled within commandTimeout ({seconds} s): "
            f"{error} Its {held.rows.rows} rows are free again; remove the cause and start the stream, which settles them "
            "first: what another consumer takes before that is processed by both."
        )

    def _replay(self, start: Offset | None, end: Offset) -> None:
        """Lock what is left of an unfinished batch again, and hold it."""
        self._release()
        queue, rows = self._lock(end, end.live, end.expired)
        if end.taken:
            say_not_taken_again(end)
        elif not end.empty:
            log.warning("replaying queue=%s rows=%d taken_by_others=%d", queue.table.name, len(rows.live),
                        len(end.live) - len(rows.live))  # fmt: skip
        self._held = OpenClaim(queue, start, end, rows)

    def _lock(self, end: Offset, live: RowSet, expired: RowSet) -> tuple[Queue, Claimed]:
        """Lock what is left of these rows of a batch.

        :returns: the queue whose open transaction holds these rows, and the rows: none where these are other rows.
        """
        queue = self._pool.borrow()
        try:
            check_belongs(end, queue)
            rows = relock(queue, end, live, expired)
            if rows is None:
                queue.connection.rollback()
        except BaseException:
            queue.connection.close()
            raise
        return queue, Claimed() if rows is None else rows

    def _release(self) -> None:
        """Give back to everybody what is held, and what was claimed ahead."""
        self._scanner.give_up_ahead()
        self.staging.forget()
        if self._held is not None:
            self._held.release()
            self._held = None
            self._scanner.look_from_start_next()
