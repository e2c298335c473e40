"""One stream's receiver: at most one claim a batch, held in one open transaction until Spark proves it done.

::

            latest: rows locked              latest(start = held) or settle(held)
    idle ──────────────────────▶ held ──────────────────────────────────────────▶ idle
     ▲                            │        DELETE the claim, COMMIT
     └── rollback: close(), process gone

Spark may call twice, late or never: every method is harmless when repeated. The offset before the first batch
is None. In mode ``none`` no claim is made: see :mod:`sqlqueue_spark.receive.claiming.destructive_look`.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlqueue_spark import fail_points, plain_text
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, SqlQueueError
from sqlqueue_spark.options import NO_TRANSACTION, RECEIVE_ONLY, SourceOptions
from sqlqueue_spark.receive.claiming.checkpoint_owner import check_belongs
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.claimed_batch import Claims
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool, QueueSession
from sqlqueue_spark.receive.claiming.destructive_look import Looks
from sqlqueue_spark.receive.claiming.next_batch import BatchMaker
from sqlqueue_spark.receive.claiming.stream_scanner import Scanner
from sqlqueue_spark.receive.holding.done_file import GIVEN_BACK, RECEIVED, DoneFile
from sqlqueue_spark.receive.holding.settling import OpenClaim, Settling, may_go_away
from sqlqueue_spark.receive.holding.stage_dispatch import StageDispatch
from sqlqueue_spark.receive.holding.unfinished_batch import known_to_the_sink, locked_again
from sqlqueue_spark.receive.offset import Json, Offset
from sqlqueue_spark.receive.reading.first_reading import FirstReadings
from sqlqueue_spark.receive.reading.slices import Task, tasks_of
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)


class Receiver:
    """Claims, plans and settles the micro-batches of one stream. It opens nothing until it is first asked.

    Two threads use it, one at a time: Spark's thread, and the thread that watches ``doneFile`` and settles.
    """

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
        maker: BatchMaker = Looks(options, clock, sleep) if takes else Claims(options, clock)
        self._scanner = Scanner(options, self._pool, maker, clock, sleep)
        self._staging = StageDispatch(options, self._pool)
        self._held: OpenClaim | None = None
        self._settled: Offset | None = None
        #: Of batches whose workers take the rows: who takes them, and the one of which Spark has the tasks.
        self._readings = FirstReadings()
        self._handed_out: Offset | None = None
        path = options.done_file
        self._done_file = None if path is None else DoneFile(Path(path), self.settle)
        #: Held for whatever must not be settled in between.
        self._one_at_a_time = threading.RLock()
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
            log.warning("everything_at_once queue=%s: the trigger ignores every limit, and its rows stay "
                        "in the queue until the stream is started again; take trigger(availableNow=True)",
                        self._options.title)  # fmt: skip
        with self._one_at_a_time:
            return self._pool.retried(lambda: self._latest(start, max_rows, sure=sure))

    def plan(self, start: Offset | None, end: Offset | None) -> Sequence[Task]:
        """The tasks of the batch that ends with ``end``; locks its rows again if they are not held here.

        :raises ConfigurationError: workers take the rows, and Spark has the tasks already.
        """
        if end is None and start is not None:  # an empty batch of Spark before 4.2
            self.finish(start, rows=False)
        if end is None or start == end:
            return []
        with self._one_at_a_time:
            held = self._held
            if held is None or held.end != end:
                held = self._pool.retried(lambda: self._replay(start, end))
            if self._done_file is not None:
                self._done_file.watch()
            if held.session is None:
                self._hand_out(end)
            elif self._done_file is not None:  # each of these rows is read, or the batch fails
                live = [part.live for part in held.parts]
                self._done_file.say(RECEIVED, f"{sum(map(len, live))} {sum(each.cubes for each in live)}")
            fail_points.step(fail_points.OFFSET_LOGGED)
            self._pool.retried(lambda: self._staging.open(start, end))
            return tasks_of(held.parts, self._options, None if held.session else self._readings.begin())

    def finish(self, start: Offset | None, *, rows: bool) -> None:
        """Settle what is held if ``start`` is its offset; else give it back, and settle ``start``.

        What waits on a stage stays there: the batch that follows may have staged it, and may be running
        again.

        :param rows: whether the batch that follows has rows of this queue.
        """
        with self._one_at_a_time:
            look = self._held if self._held is not None and self._held.session is None else None
            self._pool.retried(lambda: self._finish(start))
            self._held = look  # what it found is still to be taken
            if not rows:
                self._pool.retried(lambda: self._staging.take(start))

    def settle(self, end: Offset | None) -> None:
        """Delete and commit the held claim if ``end`` is its offset."""
        with self._one_at_a_time:
            if self._held is not None and self._held.end == end:
                self._pool.retried(self._settle)
                self._scanner.batch_done()

    def stop_at_present_end(self) -> None:
        """Receive nothing that arrives from now on (``Trigger.AvailableNow``)."""
        self._pool.retried(self._scanner.stop_at_present_end)

    def waiting(self) -> Json | None:
        """How many rows wait behind the present batch, and how old the oldest is, as last seen."""
        return self._scanner.waiting()

    def close(self) -> None:
        """Settle the held batch if ``doneFile`` says so, else give it back; then end the connections."""
        try:
            self._readings.close()
            if self._done_file is not None:
                self._done_file.close()
            with self._one_at_a_time:
                try:
                    if self._done_file is not None and self._held is not None:
                        self._done_file.look()
                except SqlQueueError as error:  # the next start settles it
                    log.warning("not_settled queue=%s: %s", self._options.title, error)
                finally:
                    self._release()
                    self._staging.close()
        finally:
            self._scanner.close()
            self._pool.close()

    # -- steps ----------------------------------------------------------------------------------

    def _latest(self, start: Offset | None, max_rows: int | None, *, sure: bool) -> Offset | None:
        held = self._held
        next_process = held is not None and held.settling is Settling.THE_NEXT_PROCESS
        if held is not None and held.start == start and not (held.lost or next_process):
            return held.end  # claimed, and not begun
        self._finish(start)
        if sure and self._scanner.due:  # an idle stream looks at its stage as often as at its queue
            self._staging.tidy(start)
        self._staging.hold()
        claimed = self._scanner.next(start, max_rows)
        end = self._staging.named_after(start) if claimed is None else claimed.end
        if not sure and end is not None:  # the claim may equal the last batch, and must not pass for it
            end = end.saying(process=secrets.token_hex(8))
        if claimed is None or end is None:
            return end
        self._held = OpenClaim(claimed.start, end, claimed.parts, claimed.session)
        if claimed.session is not None:
            fail_points.step(fail_points.ROWS_LOCKED)
        self._scanner.batch_runs(claimed)
        return end

    def _finish(self, start: Offset | None) -> None:
        if self._held is not None:
            if start == self._held.end:
                self._settle()
            else:
                self._release()
        if start is not None and start != self._settled:
            session, parts = self._lock(start, start.parts, logged=True)
            self._held = OpenClaim(None, start, parts, session, settling=Settling.THE_NEXT_PROCESS)
            self._settle()

    def _hand_out(self, end: Offset) -> None:
        if self._handed_out == end:
            raise ConfigurationError(
                f"The query reads {self._options.title} twice in one batch (a union or a join of the stream "
                "with itself), but with transactionMode none a row has gone with its first reading, so "
                "nothing is taken; read the stream once, or take transactionMode receiveOnly."
            )
        self._handed_out = end

    def _settle(self) -> None:
        """Settle the held claim: its batch is logged. After a loss, lock and settle what is left of it."""
        held = self._held
        assert held is not None, "only what is held is settled"
        if held.lost:
            held = self._held = held.locked_again(*self._lock(held.end, held.wanted(), logged=True))
        try:
            sent = held.settle(lambda its: self._staging.send(its, held.end, deleting=held.count))
        except ConnectionLost as error:
            log.warning("claim_lost queue=%s rows=%d: %s", self._pool.title, held.count, error)
            held.release()
            if error.deadlock:  # the other session waits for all that is claimed
                self._scanner.give_up_ahead()
            self._scanner.look_from_start_next()
            raise
        except SqlQueueError as error:
            held.release()
            if may_go_away(error):
                raise self._gave_up(held, error) from error
            raise
        if held.session is not None:
            self._pool.give_back(held.session)
        self._held, self._settled = None, held.end
        self._staging.say_sent(held.end.stage, sent)
        held.say_settled(self._pool.title)

    def _gave_up(self, held: OpenClaim, error: SqlQueueError) -> SqlQueueError:
        kinds = (QueueError, ConfigurationError)
        kind = next((each for each in kinds if isinstance(error, each)), SqlQueueError)
        seconds = round(self._options.command_timeout.total_seconds())
        return kind(
            f"The last batch of {self._pool.title} is done but could not be settled within commandTimeout "
            f"({seconds} s): {error} Its {held.count} rows are free again; remove the cause and start the "
            "stream, which settles them first: what another consumer takes before that is processed by both."
        )

    def _replay(self, start: Offset | None, end: Offset) -> OpenClaim:
        """Lock what is left of an unfinished batch again, and hold it."""
        self._release()
        if self._staging.keeps(start):
            self._settled = None  # a fail-over has taken it back
            self._finish(start)
        session, parts = self._lock(end, end.parts, logged=False)
        self._held = held = OpenClaim(start, end, parts, session)
        if end.taken:
            log.warning("not_taken_again queue=%s rows=%d: the process that planned this batch has ended; "
                        "what its workers took is in the sink or lost, the rest comes in later batches",
                        end.queue, end.claimed)  # fmt: skip
        elif not end.empty:
            wanted = sum(len(part.live) for part in end.parts)
            left = sum(len(part.live) for part in parts)
            log.warning("replaying queue=%s rows=%d taken_by_others=%d", session.name, left, wanted - left)
        return held

    def _lock(
        self, end: Offset, wanted: Sequence[Offset], *, logged: bool
    ) -> tuple[QueueSession, list[QueueRows]]:
        """Lock what is left of a batch.

        :param wanted: the rows of each queue, which may be fewer than those of ``end``.
        :param logged: whether Spark has logged the batch. Then these are only the rows to be settled.
        :returns: the session whose open transaction holds these rows, and the rows of each queue: none where
            they are others.
        """
        with self._pool.lent() as session:
            check_belongs(end, session, self._options)
            parts = locked_again(session, wanted)
            if logged and self._options.outbox_endpoint is not None and end.mode == RECEIVE_ONLY:
                left = [known_to_the_sink(each, self._options) for each in parts]
                if self._done_file is not None and [each.count for each in left] != [p.count for p in parts]:
                    self._done_file.say(GIVEN_BACK)
                parts = left
                self._scanner.look_from_start_next()
        return session, parts

    def _release(self) -> None:
        """Give back to everybody what is held, and what was claimed ahead."""
        self._scanner.give_up_ahead()
        self._staging.forget()
        if self._held is not None:
            self._held.release()
            self._held = None
            self._scanner.look_from_start_next()
