"""Mode ``sendsAtomicWithReceive``: what a batch has staged is sent by the claim's own transaction.

The offset of a batch names its stage. So the batch is settled from that stage, whatever the mode in which the
stream goes on. In another mode, or under another stream, a batch is either finished right or refused before
Spark logs it.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator

from sqlqueue_spark import plain_text
from sqlqueue_spark.errors import ConfigurationError, RowsHeld
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ATOMIC, SourceOptions
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool, QueueSession
from sqlqueue_spark.receive.offset import Offset, batch_offset, stage_of
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.tables.ddl import create_stage
from sqlqueue_spark.tables.stages.stage import Incomplete, Stage, Unsealed
from sqlqueue_spark.tables.stages.stage_mark import Batch, Mark
from sqlqueue_spark.tables.stages.stage_name import table_of

log = plain_text.logger(__name__)

#: How long clearing a stage waits for its readers.
_CLEARING_MS = 1


class StageDispatch:
    """Opens the stage for each batch, sends what is on it when the batch is settled, clears it in between.

    An atomic source holds its stage on a connection of its own, from the first time it is asked for messages
    until it is closed. Otherwise two sources of one stream would stage into each other's batches.
    """

    def __init__(self, options: SourceOptions, pool: ConnectionPool) -> None:
        self._options = options
        self._pool = pool
        self._own = stage_of(options)
        #: The own stage on the connection that holds it.
        self._home: Stage | None = None
        self._just_taken = False
        self._opened: Offset | None = None
        #: Whether the stage has nothing but its mark, as far as this process knows.
        self._empty = False
        #: Whether this process has looked at the stages that were used before it began.
        self._looked_back = False

    def open(self, start: Offset | None, end: Offset) -> None:
        """Give the stage to the batch that ends with ``end``, once: Spark may plan it again while it runs.

        :param start: the last batch before it that had a claim.
        :raises ConfigurationError: the batch was begun in another mode or under another stream, and can be
            finished only there; or another source uses the stage.
        """
        if self._opened == end:
            return
        if end.taken:
            self.take()
        elif self._own is not None:
            self._check_begun_so(end, self._own)
            self._look_back_once(start, end)
            with self._at_home() as stage, stage.connection.transaction():
                sent = stage.move_waiting()
                stage.open(_digest(end), queue=_queues(end))
            self._empty = False
            self.say_sent(self._own, sent)
        else:
            self._send_left_before(start, but=end.stage)
            if end.stage is not None:
                self._leave_to_the_sink(end, end.stage)
        self._opened = end

    def send(self, session: QueueSession, end: Offset, *, deleting: int) -> int | None:
        """Move what the batch has staged into its destinations, in the open transaction; harmless twice.

        :param deleting: how many of the batch's rows the transaction deletes. With 0, an earlier transaction
            did all this.
        :returns: how many messages; None where the stage has nothing of the batch.
        :raises ConfigurationError: not all that the batch has staged is there, and either rows would be
            deleted, or the batch claimed none and so cannot run again.
        """
        if end.stage is None:
            return None
        stage = Stage(session.connection, end.stage, self._options)
        try:
            moved = stage.move(_digest(end)) if self._opened == end or stage.exists() else None
        except Incomplete as error:
            if deleting:
                why = _NEVER_CALLED if isinstance(error, Unsealed) else _LOST
                raise ConfigurationError(
                    f"{error}, so the {deleting} rows of the last batch of {session.name} stay in the queue: "
                    f"{why} {_RUN_AGAIN}"
                ) from error
            if end.empty and not isinstance(error, Unsealed):
                raise stage.lost(error) from error
            log.warning("nothing_to_send queue=%s: %s, and no row of the batch is left", session.name, error)
            stage.give_up()
            return None
        if moved is None and deleting:
            raise ConfigurationError(
                f"What the last batch of {session.name} sent is not on the stage {end.stage} any more, so "
                f"its {deleting} rows stay in the queue: another pipeline of the same option stream has "
                f"emptied the stage. Give each a name of its own. {_RUN_AGAIN}"
            )
        return moved

    def say_sent(self, stage: Table | None, sent: int | None) -> None:
        """Log how many messages a stage has sent, once that is committed; None where there was nothing."""
        if sent is not None:
            log.info("sent queue=%s stage=%s sent=%d", self._pool.title, stage, sent)

    def take(self, start: Offset | None = None) -> None:
        """Hold the stage for a batch that has no rows of this queue, or whose rows do not come again.

        What an earlier run of the batch has staged may wait there. If the mark names a claim that was not
        settled, the mark is made idle: else the sink would stage the batch for that claim.

        :param start: the offset before the batch, for Spark before 4.2, which then logs an offset that names
            no stage. If the stream has neither the mode nor the name of before, no later step would find what
            waits on the stage of ``start``.
        """
        if self._own is None:
            self._send_left_before(start)
        else:
            with self._at_home() as stage, stage.connection.transaction():
                mark = stage.mark()
                if mark is not None and mark.claim:
                    stage.give_up()
                stage.begin()

    def tidy(self, start: Offset | None) -> None:
        """Send what batches without rows of this queue have left, and clear the stage.

        Call it between two batches, when the one that ends with ``start`` is settled. Spark asks for more
        only when it has logged all earlier batches.
        """
        if not self._looked_back:
            self._send_left(_named(start), self._by_stream())
            self._looked_back = True
        if self._own is None:
            return
        with self._at_home() as stage:
            sent = given_up = None
            with stage.connection.transaction():
                mark = stage.mark()
                if mark is not None and mark.waits:
                    sent = stage.move_waiting()
                elif mark is not None and not mark.idle:
                    sent = self._resent(stage, start, mark)
                    given_up = self._given_up(stage, mark) if sent is None else None
                if self._just_taken:
                    stage.begin()
                    self._just_taken = False
            self.say_sent(self._own, sent)
            if given_up is not None:
                log.warning("stage_given_up stage=%s sealed=%s: a batch that was begun there does not belong "
                            "to this checkpoint's last one", self._own, given_up.sealed)  # fmt: skip
            if sent is not None or given_up is not None or not self._empty:
                self._empty = self._cleared(stage)

    def keeps(self, start: Offset | None) -> bool:
        """Whether what the last batch has sealed is here still: a fail-over has taken its settling back."""
        if self._own is None or start is None:
            return False
        with self._at_home() as stage, stage.connection.transaction():
            mark = stage.mark()
            return mark is not None and mark.sealed and _opened_for(start, mark)

    def hold(self) -> None:
        """Hold the stage before an offset names it: while another source holds it, no batch opens it."""
        if self._own is not None:
            with self._at_home():
                pass

    def named_after(self, start: Offset | None) -> Offset | None:
        """The offset where there is nothing to claim: ``start``, or one of no rows that names the own stage.

        A batch without rows of this queue leaves the offset as it is, and may stage messages all the same.
        The source looks for them on the stage that the offset names, even if the stream has another by then.
        """
        if self._own is None or (start is not None and start.stage == self._own):
            return start
        parts: list[Offset] = []
        if not self._options.several:
            none = RowSet()
            with self._pool.transaction() as session:
                (its,) = map(session.at, self._pool.names)
                parts = [Offset(queue=its.name, identity=its.identity() or "", live=none, expired=none)]
        return batch_offset(start, parts, self._options)

    def forget(self) -> None:
        """Forget which batch has the stage: the next batch is another attempt, even at the same rows."""
        self._opened = None

    def close(self) -> None:
        """Let go of the stage."""
        home, self._home = self._home, None
        if home is not None:
            home.connection.close()

    # -- holding --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _at_home(self) -> Iterator[Stage]:
        """The source's stage on the connection that holds it. After an error the next call holds it again."""
        assert self._own is not None, "an atomic source has a stage"
        if self._home is None:
            self._home = self._taken(self._own)
            self._just_taken, self._empty = True, False
        try:
            yield self._home
        except BaseException:
            self.close()
            raise

    def _taken(self, table: Table) -> Stage:
        with self._pool.lent() as session:
            create_stage(session.connection, table)
            stage = Stage(session.connection, table, self._options)
            try:
                # patient: a server needs longer than lockTimeout to notice that the holder's machine vanished
                with session.connection.transaction(), session.connection.patient():
                    stage.hold()
            except RowsHeld as error:
                with session.connection.transaction():
                    whom = ", ".join(stage.holders()) or "another source"
                raise _in_use(table, whom) from error
        return stage

    def _cleared(self, stage: Stage) -> bool:
        try:
            with stage.connection.hasty(_CLEARING_MS):
                stage.clear()
        except RowsHeld:
            log.debug("not_cleared stage=%s: another session has it open; the next time", self._own)
            return False
        return True

    # -- batches of other modes and streams -----------------------------------------------------

    def _check_begun_so(self, offset: Offset, own: Table) -> None:
        if offset.stage is None:
            raise ConfigurationError(
                f"The last batch of {offset.queue} was begun with transactionMode {offset.mode} and has not "
                f"ended, and its offset cannot remember a stage; start once with transactionMode "
                f"{offset.mode}, then with {ATOMIC}."
            )
        if offset.stage != own:
            raise ConfigurationError(
                f"The last batch of {offset.queue} was begun with the stage {offset.stage} and has not "
                f"ended, but the option stream means the stage {own}; start once with the stream of before, "
                "then with the new one."
            )

    def _leave_to_the_sink(self, end: Offset, table: Table) -> None:
        """Write into the mark of a batch's stage that its sink sends the batch, and the stage never does."""
        with self._pool.borrowed() as session:
            create_stage(session.connection, table)
            stage = Stage(session.connection, table, self._options)
            with session.connection.transaction():
                whom = stage.holders()
                if whom and end.empty and not _opened_for(end, stage.mark()):
                    return  # another source of this query holds its stage; nothing of this batch counts there
                if whom:
                    raise ConfigurationError(
                        f"The last batch of {session.name} was begun with the stage {table} and has not "
                        f"ended, and another source holds that stage: {', '.join(whom)}. End that session if "
                        "it is a stopped stream's; where it is another source of this query, give a new "
                        "checkpoint folder (a state that the query keeps is lost)."
                    )
                sent = stage.move_waiting()
                stage.open(_digest(end), queue=_queues(end), mode=self._options.transaction_mode)
        self.say_sent(table, sent)

    def _given_up(self, stage: Stage, mark: Mark) -> Mark | None:
        """Make the mark of a claim idle that is not of this checkpoint's last batch; return it as it was.

        :raises ConfigurationError: another source's batch is sealed. It may be logged, and what is on the
            stage may be all that is left of it: beside the messages of its own source, the stage has those of
            the batch's other sources, whose rows are deleted.
        """
        read = {*map(plain_text.plain, self._pool.names.values())}
        others = [name for name in mark.queue.split("\n") if name and name not in read]
        if mark.sealed and others:
            raise ConfigurationError(
                f"The stage {self._own} has what a batch of the queue {', '.join(others)} sends, and that "
                "batch is not settled; start once with the transactionMode and the stream that its source "
                f"had, then with the new ones. To go on without these messages, drop the table {self._own} "
                "and start the stream."
            )
        return stage.give_up()

    def _look_back_once(self, start: Offset | None, end: Offset) -> None:
        """Send what waits on the stage of the batch before, if this batch is opened for the first time.

        Spark before 4.2 tells of that batch only now. An earlier run of this batch has looked there before it
        opened the own stage; the sink may have put something there since.
        """
        if _named(start) not in (None, self._own):
            with self._at_home() as stage, stage.connection.transaction():
                before = _opened_for(end, stage.mark())
            if not before:
                self._send_left(_named(start))

    def _send_left_before(self, start: Offset | None, *, but: Table | None = None) -> None:
        """Send what waits on the stage of ``start`` if no later step would find it: of Spark before 4.2.

        :param but: the stage that the next offset names.
        """
        if _named(start) not in (but, self._by_stream()):
            self._send_left(_named(start))

    def _resent(self, stage: Stage, start: Offset | None, mark: Mark) -> int | None:
        """Send once more what a batch that claimed no rows has staged, if a fail-over took its settling back.

        No row of the queue comes back with it, so no other step would notice.

        :returns: how many messages; None when the stage is not that batch's.
        """
        if start is None or not (start.empty and start.stage and mark.sealed and _opened_for(start, mark)):
            return None
        try:
            return stage.move(mark.claim)
        except Incomplete as error:
            raise stage.lost(error) from error

    def _by_stream(self) -> Table | None:
        """The stage that ``stream`` means to a source whose mode was changed, so that it has none."""
        if self._own is None and self._options.stream:
            with contextlib.suppress(ConfigurationError):  # no stage can have this name
                return table_of(self._options)
        return None

    def _send_left(self, *stages: Table | None) -> None:
        """Send what batches without rows of this queue have left on other stages that no live source holds.

        :raises ConfigurationError: messages wait there and a session holds the stage, perhaps one that a dead
            process has left. The next offset would forget the stage, unless the option ``stream`` means it
            too.
        """
        for table in {each for each in stages if each is not None} - {self._own}:
            with self._pool.transaction() as session:
                stage, sent = Stage(session.connection, table, self._options), None
                if stage.exists():
                    if not (whom := stage.holders()):
                        sent = stage.move_waiting(before=self._last_batch(session))
                    elif table != self._by_stream() and (mark := stage.mark()) is not None and mark.waits:
                        raise _in_use(table, ", ".join(whom))
            self.say_sent(table, sent)

    def _last_batch(self, session: QueueSession) -> Batch | None:
        """The last batch in the mark of the own stage: what it has staged on another stage is void.

        None also where Spark does not tell which query it is: batches of two queries may have one number.
        """
        if self._own is None:
            return None
        own = Stage(session.connection, self._own, self._options)
        mark = own.mark() if own.exists() else None
        return mark.batch if mark is not None and mark.batch.query else None


_LOST = "its database has lost what was committed."
_NEVER_CALLED = (
    "the program has not called its sink for the batch (a guard like isEmpty(), an error that it "
    "swallowed), the sink does not stage there, or its database has lost what was committed. Call the sink "
    "for each batch, also with an empty frame. If the query has another source of this mode, that one has "
    "sent these rows: do not run the batch again, but delete them, and give this source receiveOnly."
)
_RUN_AGAIN = (
    "Remove the newest file of the checkpoint's folder commits: the batch then runs again. Where that does "
    "not help, because Spark has begun another batch since, give a new checkpoint folder (a state that the "
    "query keeps is lost)."
)


def _named(start: Offset | None) -> Table | None:
    return None if start is None else start.stage


def _in_use(table: Table, by_whom: str) -> ConfigurationError:
    return ConfigurationError(
        f"Two sources use the stage {table}: it is held by {by_whom}. Give each query a stream of its own, "
        "all sources of one query but one receiveOnly, and see that the stream runs only once; if that is "
        "what a dead machine has left, end that session, or start again in a few minutes."
    )


def _opened_for(end: Offset, mark: Mark | None) -> bool:
    """Whether the stage was opened for the claim of the batch that ends with ``end``."""
    return mark is not None and mark.claim == _digest(end)


def _queues(end: Offset) -> str:
    """The queues of a batch as its mark names them: a line each, whatever line feeds a name has."""
    return "\n".join(plain_text.plain(part.queue) for part in end.parts)


def _digest(end: Offset) -> str:
    """A claim's name, short and the same after a restart."""
    return hashlib.sha256(json.dumps(end.to_json(), sort_keys=True).encode()).hexdigest()
