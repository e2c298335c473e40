"""One batch of mode ``none`` over several queues: what a look at each has seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import NO_TRANSACTION, SourceOptions
from sqlqueue_spark.receive.claim import Limits
from sqlqueue_spark.receive.found import Find
from sqlqueue_spark.receive.in_transit import Forwarder, MovedOn
from sqlqueue_spark.receive.joint_batch import Gathering
from sqlqueue_spark.receive.joint_session import JointSession
from sqlqueue_spark.receive.joint_turn import LOCKED_MS
from sqlqueue_spark.receive.lookout import Lookout, Planned
from sqlqueue_spark.receive.offset import JointOffset, Offset, next_serial
from sqlqueue_spark.receive.poll_backoff import PollBackoff
from sqlqueue_spark.tables.queues import Queue


@dataclass
class JointPlan:
    """The rows of one batch, of each queue; this stream holds none of them."""

    start: Offset | None
    end: Offset
    parts: Sequence[Planned]
    full: bool
    session: None = None

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)

    def follow(self, start: Offset | None) -> None:
        self.start, self.end = start, self.end.after(start)

    def release(self) -> None:
        """Do nothing: no row is held."""


class JointLooks(Gathering[Planned, JointPlan]):
    """Looks at several queues, one after the other."""

    def __init__(
        self,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._lookouts: dict[Table, Lookout] = {}
        self.moved_on = MovedOn()
        #: Whether the run ends when no row is found.
        self.bounded = False

    def find(self, table: Table) -> Find[Planned]:
        pace = PollBackoff(self._options.poll_interval, self._clock, self._sleep)
        lookout = self._lookouts[table] = Lookout(pace, Forwarder(self._options, self._clock, self.moved_on))

        def find(
            queue: Queue, start: Offset | None, after: int, up_to: int, limits: Limits
        ) -> Planned | None:
            lookout.bounded = self.bounded
            queue.connection.hurry(LOCKED_MS)  # the look before has ended its transaction
            return lookout.find(queue, start, after, up_to, limits)

        return find

    def gather(
        self, session: JointSession, start: Offset | None, turn: Callable[[], list[Planned]]
    ) -> JointPlan | None:
        planned = turn()
        session.rollback()
        if not planned:
            return None
        ends = [part.end for part in planned]
        end = JointOffset(ends, mode=NO_TRANSACTION, serial=next_serial(start))
        return JointPlan(start, end, planned, full=any(part.full for part in planned))

    def note(self, plan: JointPlan) -> None:
        """Note that rows are planned: their batch is told to Spark."""
        for part in plan.parts:
            self._lookouts[part.table.table].note(part)
