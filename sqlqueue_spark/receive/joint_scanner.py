"""Finds the rows of the next batch in several queues: a fair share of each, in one transaction.

Each queue has a scanner of its own, which knows where it has looked, what it leaves to neighbours, and how long it rests. What
goes wrong with one queue does not hold up the others: it is set aside for a while, and the batch is claimed without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from sqlqueue_spark import plain_text
from sqlqueue_spark.errors import QueueError, RowsHeld, SqlQueueError, TooMuch, TryAgain
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claim import Limits
from sqlqueue_spark.receive.claim_ahead import ClaimAhead
from sqlqueue_spark.receive.joint_batch import Gathering, Joint, QueueFails, Share
from sqlqueue_spark.receive.joint_session import JointPool, JointSession
from sqlqueue_spark.receive.joint_turn import LOCKED_MS, Look, Member, take_turns
from sqlqueue_spark.receive.offset import Json, Offset
from sqlqueue_spark.receive.poll_backoff import LONGEST_SLEEP
from sqlqueue_spark.receive.queue_scanner import QueueScanner, Search
from sqlqueue_spark.receive.scanner import StreamScanner
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)

#: So long a batch does without a queue with which something is wrong.
LATER_SECONDS = 5.0
#: So often it is looked for queues that a pattern matches, at most.
_LIST_SECONDS = 5.0

P = TypeVar("P", bound=Share)
J = TypeVar("J", bound=Joint)


class JointScanner(StreamScanner[J], Generic[P, J]):
    """Makes the claims of a stream over several queues."""

    def __init__(
        self,
        options: SourceOptions,
        pool: JointPool,
        gathering: Gathering[P, J],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(options, clock)
        self._pool = pool
        self._gathering = gathering
        self._sleep = sleep
        self._members: dict[str, Member[P]] = {}
        #: How many shares there were, of all queues.
        self._served = 0
        self._listed = False
        self._list_again = 0.0
        #: Whether this run ends at the rows that are there now (``Trigger.AvailableNow``).
        self._bounded = False

    # -- which queues ----------------------------------------------------------------------------

    def _list(self) -> None:
        """Find out which queues there are, when it is time to."""
        first = not self._pool.opened_before
        if first:
            self._pool.give_back(self._pool.borrow())
        elif (
            self._options.queue_pattern is not None
            and not self._bounded
            and self._clock() >= self._list_again
        ):
            self._pool.refresh()
        elif self._listed:
            return
        self._listed = True
        self._list_again = self._clock() + max(_LIST_SECONDS, self._options.poll_interval.total_seconds())
        names = self._pool.names
        for table, name in names.items():
            if name not in self._members:
                scanner = QueueScanner(self._options, self._gathering.find(table), self._clock, self._sleep)
                self._members[name] = Member(table=table, name=name, scanner=scanner)
                if not first:
                    log.info("queue_appeared queue=%s", name)
        for name in [each for each in self._members if each not in names.values()]:
            log.info("queue_gone queue=%s", name)
            self._members.pop(name).scanner.cleanup.close()

    # -- the stream's scanner --------------------------------------------------------------------

    def rest(self) -> None:
        if self._ahead is not None:
            return
        now = self._clock()
        looks = [member.next_look for member in self._members.values()]
        looks += [] if self._members else [self._list_again]
        if (pause := min(looks) - now) > 0:
            self._sleep(min(pause, LONGEST_SLEEP))

    @property
    def due(self) -> bool:
        return self._ahead is not None or not self._members or bool(self._due())

    def next(self, start: Offset | None, max_rows: int | None) -> J | None:
        self._list()
        return super().next(start, max_rows)

    def claim_ahead(self, present: J) -> None:
        members = self._members
        lasts = {part.name: part.last for part in present.parts}
        more = any(part.full and part.last < self._end(part.name) for part in present.parts)
        beside = any(member.scanner.headroom.beside_neighbours for member in members.values())
        if not (self._options.claim_ahead and more) or beside or self._ahead is not None:
            return
        limits, end = self._limits, present.end
        among = [member for member in self._due() if lasts.get(member.name, LOWEST) < self._end(member.name)]

        def ahead(member: Member[P], search: Search[P], share: Limits) -> P | None:
            # Two claims of one stream never want the same row, even when the first one's connection is lost.
            after = lasts.get(member.name, member.scanner.scans.head.ended_at)
            up_to = member.scanner.scans.end
            return search(
                lambda queue: member.scanner.find_onward(queue, end, after, up_to, share, ahead=True)
            )

        self._ahead = ClaimAhead(
            # It goes on when Spark asks for it: else the queues that are looked at last would get less.
            lambda _: self._claim(end, among, limits, ahead),
            self._pool.title,
            told=self._options.done_file is not None,
        )

    def close(self) -> None:
        super().close()
        for member in self._members.values():
            member.scanner.cleanup.close()

    def batch_done(self) -> None:
        for member in self._members.values():
            member.scanner.headroom.batch_done()
        super().batch_done()

    def look_from_start_next(self) -> None:
        for member in self._members.values():
            member.scanner.look_from_start_next()

    def stop_at_present_end(self) -> None:
        self._list()
        with self._pool.transaction() as session:
            for member in self._members.values():
                highest = session.at(member.table).highest()
                member.scanner.scans.end = LOWEST if highest is None else highest
        self._bounded = True

    def waiting(self) -> Json | None:
        scanners = [member.scanner for member in self._members.values()]
        seen = [each.backlog.seen for each in scanners if each.backlog.seen is not None]
        if not seen:
            return None
        ages = [each["oldestSeconds"] for each in seen if each["oldestSeconds"] is not None]
        rows = sum(each["rows"] for each in seen)
        left = sum(each.headroom.left for each in scanners)
        return {"rows": rows, "oldestSeconds": max(ages, default=None), "leftToNeighbours": left}

    # -- what comes first ------------------------------------------------------------------------

    def _everything(self, start: Offset | None) -> J | None:
        def everything(member: Member[P], search: Search[P], _: Limits) -> P | None:
            def find(queue: Queue) -> P | None:
                highest = member.scanner.scans.end if self._bounded else queue.highest()
                return member.scanner.everything(
                    lambda look: look(queue), start, LOWEST if highest is None else highest
                )

            return search(find)

        unlimited = Limits(rows=HIGHEST, bytes=HIGHEST)
        return self._marked(self._claim(start, list(self._members.values()), unlimited, everything))

    def _late(self, start: Offset | None) -> J | None:
        def late(member: Member[P], search: Search[P], share: Limits) -> P | None:
            return member.scanner.late(search, start, share)

        return self._claim(start, self._due(), self._limits, late, counts=False)

    def _onward(self, start: Offset | None) -> J | None:
        def onward(member: Member[P], search: Search[P], share: Limits) -> P | None:
            return member.scanner.onward(search, start, share)

        found = self._marked(self._claim(start, self._due(), self._limits, onward))
        if found is None and self._bounded:
            for member in self._members.values():
                if isinstance(member.failure, TryAgain):
                    raise member.failure  # the run must not end as if that queue were empty
        return found

    def _marked(self, found: J | None) -> J | None:
        for part in () if found is None else found.parts:
            if part.name in self._members:
                part.mark(self._members[part.name].scanner.scans.head)
        return found

    def _appeared(self, ahead: J) -> bool:
        try:
            with self._pool.borrowed() as session, session.connection.hasty(LOCKED_MS):
                seen = [
                    member.scanner.headroom.appeared(session.at(member.table)) for member in self._of(ahead)
                ]
        except (RowsHeld, QueueError):
            seen = [True]  # somebody waits for the whole table, and so for this claim
        if any(seen):
            for member in self._of(ahead):
                member.scanner.scans.head.look_from_start_next()
        return any(seen)

    def _taken(self, ahead: J) -> None:
        lasts = {part.name: part.last for part in ahead.parts}
        due = [member for member in self._of(ahead) if member.scanner.backlog.due]
        if due:
            with self._pool.transaction() as session:
                for member in due:
                    member.scanner.backlog.look(session.at(member.table), lasts[member.name])
        self._marked(ahead)

    def _say_found(self, found: J | None) -> None:
        """Each queue is told in its turn."""

    # -- looking ---------------------------------------------------------------------------------

    def _claim(
        self,
        start: Offset | None,
        members: Sequence[Member[P]],
        limits: Limits,
        look: Look[P],
        *,
        counts: bool = True,
    ) -> J | None:
        """A batch of what these queues have.

        :param counts: whether a queue without rows then rests.
        """
        if not members:
            return None
        limits = Limits(rows=min(limits.rows, self._gathering.most_rows), bytes=limits.bytes)

        def gather(session: JointSession) -> J | None:
            found: list[tuple[Member[P], P | None]] = []

            def turn() -> list[P]:
                self._given_back(found)
                now = self._clock()
                take_turns(session, [each for each in members if now >= each.not_before], limits, look, found)
                self._learn(found, counts=counts)
                return [part for _, part in found if part is not None]

            while True:
                try:
                    return self._gathering.gather(session, start, turn)
                except QueueFails as error:
                    session.connection.rollback()
                    self._given_back(found)
                    failing = next(each for each in members if each.name == error.name)
                    self._set_aside(session, failing, error.cause)

        try:
            return self._pool.search(gather)
        except TooMuch as error:
            self._gathering.too_large(limits.rows, error)
            raise

    def _given_back(self, found: list[tuple[Member[P], P | None]]) -> None:
        """Forget what a turn has found: its rows are free again."""
        for member, part in found:
            if part is not None:
                member.scanner.headroom.forget_claims()
        found.clear()

    def _learn(self, found: Sequence[tuple[Member[P], P | None]], *, counts: bool) -> None:
        for member, part in found:
            if member.failure is not None and (counts or part is not None):
                log.warning("queue_works_again queue=%s", member.name)
                member.failure = None
            if part is not None:
                self._served += 1
                member.scanner.pace.found()
                member.full, member.served = part.full, self._served
            elif counts:
                member.full = False
                member.scanner.nothing_found()

    def _set_aside(self, session: JointSession, member: Member[P], error: SqlQueueError) -> None:
        """Do without a queue for a while.

        :raises SqlQueueError: no queue of a list is left that could ever have rows.
        """
        session.forget(member.table)
        if member.failure is None or type(member.failure) is not type(error):
            log.warning("queue_set_aside queue=%s: %s The others go on; it is tried again every %.0f s", member.name, error,
                        LATER_SECONDS)  # fmt: skip
        member.failure, member.not_before = error, self._clock() + LATER_SECONDS
        gone = [
            not (each.failure is None or isinstance(each.failure, TryAgain))
            for each in self._members.values()
        ]
        if all(gone) and self._options.queue_pattern is None:
            raise error

    def _due(self) -> list[Member[P]]:
        now = self._clock()
        return [member for member in self._members.values() if now >= member.next_look]

    def _of(self, batch: J) -> list[Member[P]]:
        """The queues that a batch has rows of, but for those that have gone."""
        return [self._members[part.name] for part in batch.parts if part.name in self._members]

    def _end(self, name: str) -> int:
        return self._members[name].scanner.scans.end if name in self._members else LOWEST
