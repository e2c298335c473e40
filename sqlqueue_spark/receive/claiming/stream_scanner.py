"""Finds the rows of the next batch: when to look, what comes first, how much to claim, how long to rest.

A stream has a scanner of its own for each queue, which knows where it has looked, what it leaves to
neighbours, and how long it rests.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sqlqueue_spark import plain_text
from sqlqueue_spark.errors import ConfigurationError, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits, BatchSize
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.claim_ahead import IDLE_SECONDS, ClaimAhead, Enough
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool, QueueSession
from sqlqueue_spark.receive.claiming.neighbour_watch import NeighbourWatch
from sqlqueue_spark.receive.claiming.next_batch import BatchMaker, NextBatch
from sqlqueue_spark.receive.claiming.poll_backoff import LONGEST_SLEEP
from sqlqueue_spark.receive.claiming.queue_scanner import QueueScanner, Turn
from sqlqueue_spark.receive.claiming.set_aside import QueueFails, setting_aside
from sqlqueue_spark.receive.claiming.shares_of_queues import Look, take_turns
from sqlqueue_spark.receive.offset import Json, Offset
from sqlqueue_spark.row_set import HIGHEST, LOWEST

log = plain_text.logger(__name__)

#: A claim ahead that is this many times larger than the next batch should be is given back.
_TOO_LARGE = 2
#: The least pause between two looks for queues that a pattern matches.
_LIST_SECONDS = 5.0


class Scanner:
    """Makes the claims of one stream, one after the other.

    The caller settles or releases each claim that it is given. A claim ahead belongs to the scanner until it
    is asked for.
    """

    def __init__(
        self,
        options: SourceOptions,
        pool: ConnectionPool,
        maker: BatchMaker,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._options = options
        self._pool = pool
        self._maker = maker
        self._clock = clock
        self._sleep = sleep
        self._members: dict[str, QueueScanner] = {}
        #: How many shares there were, of all queues.
        self._served = 0
        self._listed = False
        self._list_again = 0.0
        #: Whether a pattern names the queues, so that they may come and go.
        self._matches = options.queue_pattern is not None
        self._ahead: ClaimAhead | None = None
        self._watch = NeighbourWatch(pool, self._neighbours_seen)
        #: Late rows went before the claim ahead. Now it comes next: there may always be another late row.
        self._ahead_waited = False
        self._limits = BatchLimits(rows=options.most_rows, bytes=options.max_bytes_per_trigger)
        self._size = BatchSize(
            options.first_messages_per_trigger if options.adaptive_batch else options.most_rows,
            options.target_batch_duration.total_seconds(),
            options.max_batch_duration.total_seconds(),
            options.most_rows,
            told=options.done_file is not None,
        )
        #: When the present batch began; None where none runs.
        self._began: float | None = None
        #: When Spark asked for it.
        self._asked = 0.0
        #: Whether the present batch is the first one, which Spark's start makes longer.
        self._cold = True

    # -- when ------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Sleep while it is not yet time to look again, but never for long."""
        if self._ahead is not None:
            return
        looks = [member.next_look for member in self._members.values()] or [self._list_again]
        if (pause := min(looks) - self._clock()) > 0:
            self._sleep(min(pause, LONGEST_SLEEP))

    @property
    def due(self) -> bool:
        return self._ahead is not None or not self._members or bool(self._due())

    def next(self, start: Offset | None, max_rows: int | None) -> NextBatch | None:
        """Claim the next rows; None if there are none, it is not time to look, or ``stopFile`` is there.

        :param max_rows: most rows to claim; None is everything that is there now.
        """
        self._batch_ended()
        self._watch.end()
        if os.path.exists(self._options.stop_file or ""):  # noqa: PTH110 -- Path's raises where we may not look
            self._give_back_ahead()
            if not self._maker.bounded:
                self._sleep(LONGEST_SLEEP)  # Spark asks again at once
            return None
        self._list()
        if not (self.due or self._maker.bounded):  # a run must not end while it does without a queue
            return None
        asked = self._clock()
        if max_rows is None:
            self._give_back_ahead()
            members = list(self._members.values())
            limits = BatchLimits(rows=HIGHEST, bytes=HIGHEST)
            batch = self._mark(self._claim(start, members, limits, QueueScanner.everything))
        else:
            batch = self._next(start, max_rows)
        if batch is not None:
            live = sum(len(part.live) for part in batch.parts)
            self._size.begins(batch.count, live=live, more=any(part.full for part in batch.parts))
            self._began, self._asked = self._clock(), asked
        return batch

    def stop_at_present_end(self) -> None:
        """Claim nothing that arrives from now on."""
        self._list()
        self._maker.bounded = True
        with self._pool.borrowed() as session:
            for member in self._members.values():
                session.hurry()
                try:
                    with setting_aside(session, member.name):
                        member.see_end(session.at(member.table))
                except QueueFails as error:
                    self._set_aside(session, member, error.cause)
                session.rollback()

    def waiting(self) -> Json | None:
        """How many rows wait, how old the oldest is, how many were left to neighbours; all as last seen.

        ``lookedAt`` is the time of the oldest look that was before the present batch, if there is one. Of
        several queues each is told by itself, too.
        """
        scanners = self._members.values()
        seen = {each.name: told for each in scanners if (told := each.backlog.told(self._asked)) is not None}
        if not seen:
            return None
        ages = [each["oldestSeconds"] for each in seen.values() if each["oldestSeconds"] is not None]
        looks = [each["lookedAt"] for each in seen.values() if "lookedAt" in each]
        return {
            "rows": sum(each["rows"] for each in seen.values()),
            "oldestSeconds": max(ages, default=None),
            "leftToNeighbours": sum(each.headroom.left for each in scanners),
            **({"lookedAt": min(looks)} if looks else {}),
            **({"queues": seen} if self._options.several else {}),
            **({"movedOn": moved} if (moved := self._maker.forwarder.moved) else {}),
        }

    def look_from_start_next(self) -> None:
        for member in self._members.values():
            member.look_from_start_next()

    def batch_done(self) -> None:
        """Note that the present batch is done: a claim ahead is given back soon unless Spark asks for it."""
        self._batch_ended()
        if self._ahead is not None:
            self._ahead.give_up_within(IDLE_SECONDS)

    def _batch_ended(self) -> None:
        """Learn from the time of the present batch how many rows the next may have."""
        if self._began is not None:
            self._size.done(self._clock() - self._began, cold=self._cold)
            self._cold = False
        self._began = None

    def close(self) -> None:
        """End what runs in the background, and give back what was claimed ahead."""
        self._watch.close()
        self.give_up_ahead()

    # -- the claim ahead -------------------------------------------------------------------------

    def batch_runs(self, present: NextBatch) -> None:
        """Look for neighbours while the present batch runs, and claim ahead what follows it."""
        self._maker.note(present)
        self._claim_ahead(present)
        if all(part.queue.connection.dialect.tells_receivers for part in present.parts):
            names = {part.name for part in present.parts}  # of the others a full one may be claimed ahead
            self._watch.begin(m for m in self._members.values() if m.full or m.name in names)

    def _neighbours_seen(self) -> None:
        """Give up a claim ahead at once: neighbours step over its rows. The watch calls it in its thread."""
        if (ahead := self._ahead) is not None:
            ahead.give_up("neighbours are seen")

    def _claim_ahead(self, present: NextBatch) -> None:
        """Begin to claim what follows the present batch, where a backlog is likely to wait."""
        lasts = {part.name: part.last for part in present.parts}
        more = any(part.full and part.last < member.end for member, part in self._of(present))
        beside = any(member.headroom.beside_neighbours for member in self._members.values())
        # Who begins to receive while a batch runs must not find two batches in the way unseen.
        seen = all(part.queue.connection.dialect.tells_receivers for part in present.parts)
        allowed = self._options.claim_ahead and (seen or self._options.neighbour_headroom == 0)
        if not (allowed and more) or beside or self._ahead is not None:
            return
        rows = self._size.next_most if self._options.adaptive_batch else self._limits.rows
        limits, end = replace(self._limits, rows=rows), present.end
        among = [member for member in self._due() if lasts.get(member.name, LOWEST) < member.end]

        def ahead(member: QueueScanner, turn: Turn) -> QueueRows | None:
            return member.ahead(turn, lasts.get(member.name, member.head.ended_at))

        def claim(enough: Enough) -> NextBatch | None:
            return self._claim(end, among, replace(limits, enough=enough), ahead, ahead=True)

        self._ahead = ClaimAhead(claim, self._pool.title, told=self._options.done_file is not None)

    def give_up_ahead(self) -> None:
        """Give back to everybody what was claimed ahead."""
        if self._ahead is not None:
            self._ahead.give_up()
            self._ahead = None

    def _give_back_ahead(self, because: str = "") -> None:
        """Give back the claim ahead, and wait: the next claim would step over rows that are not free yet."""
        if self._ahead is not None:
            self._ahead.give_back(because)
            self._ahead = None
            self._forget_claims()

    def _forget_claims(self, again: Iterable[QueueScanner] = ()) -> None:
        """Free rows may stand where a claim was that is given back.

        :param again: those that look once more where they have just looked.
        """
        for member in again:
            member.head.look_again()
        for member in list(self._members.values()):  # a claim ahead does so in its thread
            member.headroom.forget_claims()

    def _hinders_neighbours(self, made: NextBatch) -> bool:
        """Whether neighbours are seen that come next to the rows of a claim ahead."""
        members = [member for member, _ in self._of(made)]
        seen: list[bool] = []
        try:
            with self._pool.borrowed() as session:
                session.hurry()
                for member in members:
                    with setting_aside(session, member.name):
                        seen.append(member.headroom.appeared(session.at(member.table)))
                session.rollback()
        except QueueFails:
            seen = [True]  # a session that waits for the whole table waits for this claim
        if any(seen):
            for member in members:
                member.head.look_from_start_next()
        return any(seen)

    def _take_ahead(self, start: Offset | None, ahead: ClaimAhead) -> NextBatch | None:
        self._ahead, self._ahead_waited = None, False
        held = ahead.take()
        if ahead.given_up:
            self._forget_claims()
        if held is None:
            return None
        held.follow(start)
        try:
            if any(member.backlog.due for member, _ in self._of(held)):
                with self._pool.transaction() as session:
                    self._look_behind(session, held)
        except BaseException as error:
            held.release()
            self._forget_claims()
            if isinstance(error, QueueFails):
                return None  # the claim that follows meets the same, and does without that queue
            raise
        return self._mark(held)

    def _look_behind(self, session: QueueSession, batch: NextBatch) -> None:
        """Look what waits behind a batch, in each of its queues where it is time to.

        :raises QueueFails: something is wrong with one of several queues.
        """
        due = [(member, part) for member, part in self._of(batch) if member.backlog.due]
        if not due:
            return
        session.hurry()
        for member, part in due:
            # PostgreSQL keeps the last statement's scan, and with it an index page, until the transaction's
            # next statement. Every VACUUM waits for that page. The attempt's end lets it go.
            with setting_aside(session, part.name), session.connection.attempt():
                member.backlog.look(session.at(part.queue.table.table), part.last)
        session.patient()

    # -- what comes first ------------------------------------------------------------------------

    def _next(self, start: Offset | None, max_rows: int) -> NextBatch | None:
        """Late rows from below if it is time to look for them, else the claim ahead, else a new claim."""
        rows = min(max_rows, self._size.rows) if self._options.adaptive_batch else max_rows
        self._limits = replace(self._limits, rows=rows)
        if (ahead := self._ahead) is not None:
            # With several queues those that are looked at last would get less.
            ahead.ask(HIGHEST if self._options.several else rows)
            made = ahead.made()
            if made is not None and self._hinders_neighbours(made):
                self._give_back_ahead("neighbours are seen")
            elif made is not None and made.count > _TOO_LARGE * rows:
                self._give_back_ahead("batches are smaller now")
            elif (batch := self._late(start) or self._take_ahead(start, ahead)) is not None:
                return batch
        limits = self._limits
        if self._options.several and any(each.headroom.beside_neighbours for each in self._members.values()):
            limits = limits.at_most(self._size.beside_neighbours)  # one transaction has the rows of all
        batch = self._mark(self._claim(start, self._due(), limits, QueueScanner.onward))
        if batch is None and self._maker.bounded:
            for failure in (member.aside.failure for member in self._members.values()):
                if failure is not None and not isinstance(failure, ConfigurationError | QueueError):
                    raise failure  # the run must not end as if that queue were empty
        return batch

    def _late(self, start: Offset | None) -> NextBatch | None:
        """Late rows, which go before the claim ahead, but not twice in a row."""
        if self._ahead_waited:
            return None
        members = [member for member in self._due() if member.late_ranges()]
        batch = self._claim(start, members, self._limits, QueueScanner.late, counts=False)
        self._ahead_waited = batch is not None
        return batch

    def _mark(self, batch: NextBatch | None) -> NextBatch | None:
        """Let the next looks begin where this batch ends."""
        for member, part in () if batch is None else self._of(batch):
            if part.locked:
                member.head.claimed(part)
            else:
                member.head.passed(part.last)
            member.backlog.claimed(part)
        return batch

    # -- looking ---------------------------------------------------------------------------------

    def _claim(
        self,
        start: Offset | None,
        members: Sequence[QueueScanner],
        limits: BatchLimits,
        look: Look,
        *,
        counts: bool = True,
        ahead: bool = False,
    ) -> NextBatch | None:
        """A batch of what these queues have.

        :param counts: whether a queue without rows then rests.
        :param ahead: whether it is claimed ahead. Then queues do not rest where none of them has rows: Spark
            asks soon.
        """
        if not members:
            return None
        limits = limits.at_most(self._maker.bearable.rows)
        looked: dict[QueueScanner, QueueRows | None] = {}
        failed: set[QueueScanner] = set()  # their time is over before many others have failed

        def turn(*, again: bool = False) -> list[QueueRows]:
            if looked:
                self._forget_claims(looked if again else ())
                looked.clear()
            left = [member for member in members if member not in failed]
            looked.update(take_turns(session, left, limits, look))  # as far as it comes before an error
            parts = [part for part in looked.values() if part is not None]
            self._learn(looked, rests=counts and not (ahead and not parts))
            return parts

        def made() -> NextBatch | None:
            while True:
                try:
                    batch = self._maker.make(session, start, turn)
                    if batch is not None and not ahead:
                        self._look_behind(session, batch)
                    return batch
                except QueueFails as error:
                    session.connection.rollback()
                    failing = next(each for each in members if each.name == error.name)
                    failed.add(failing)
                    self._set_aside(session, failing, error.cause)

        session = self._pool.borrow()
        try:
            batch = made()
            if batch is not None and batch.session is not None:
                return batch  # the session stays lent: its transaction holds the rows
            session.rollback()
        except BaseException:
            session.connection.close()
            self._forget_claims()
            raise
        self._pool.give_back(session)
        return batch

    def _learn(self, looked: Mapping[QueueScanner, QueueRows | None], *, rests: bool) -> None:
        for member, part in looked.items():
            if rests or part is not None:
                member.aside.works()
            if part is not None:
                self._served += 1
                member.pace.found()
                member.full, member.served = part.full, self._served
            elif rests:
                member.full = False
                member.nothing_found()

    # -- which queues ----------------------------------------------------------------------------

    def _list(self) -> None:
        """Find out which queues there are, when it is time to."""
        if not self._pool.opened_before:
            with self._pool.borrowed():
                pass
        elif self._matches and not self._maker.bounded and self._clock() >= self._list_again:
            self._pool.refresh()
        elif self._listed:
            return
        self._list_again = self._clock() + max(_LIST_SECONDS, self._options.poll_interval.total_seconds())
        names = self._pool.names
        for table, name in names.items():
            if name not in self._members:
                its = (self._options, self._pool, self._maker, self._clock, self._sleep)
                self._members[name] = QueueScanner(*its, table=table, name=name, size=self._size)
                if self._listed:
                    log.info("queue_appeared queue=%s", name)
        for name in [each for each in self._members if each not in names.values()]:
            log.info("queue_gone queue=%s", name)
            del self._members[name]
        self._listed = True

    def _set_aside(self, session: QueueSession, member: QueueScanner, error: SqlQueueError) -> None:
        """Do without a queue for a while.

        :raises SqlQueueError: no queue of a list is left that could ever have rows.
        """
        session.forget(member.table)
        member.aside.fails(error, self._clock())
        member.backlog.seen = None
        failures = [each.aside.failure for each in self._members.values()]
        if not self._matches and not any(each is None or isinstance(each, TryAgain) for each in failures):
            raise error

    def _due(self) -> list[QueueScanner]:
        now = self._clock()
        return [member for member in self._members.values() if now >= member.next_look]

    def _of(self, batch: NextBatch) -> list[tuple[QueueScanner, QueueRows]]:
        """The queues that a batch has rows of, but for those that have gone, and these rows."""
        return [(self._members[part.name], part) for part in batch.parts if part.name in self._members]
