"""One look at each of several queues, in one transaction: in which order, and how many rows each may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlqueue_spark.errors import ConfigurationError, LockTimeout, QueueError, RowsHeld, SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.receive.claim import Limits
from sqlqueue_spark.receive.joint_batch import QueueFails, Share
from sqlqueue_spark.receive.joint_session import JointSession
from sqlqueue_spark.receive.queue_scanner import QueueScanner, Search

#: So long a look waits for a table that somebody has locked.
LOCKED_MS = 500
#: What is wrong with one queue, and not with the database.
ITS_OWN = (QueueError, ConfigurationError, LockTimeout, RowsHeld)

P = TypeVar("P", bound=Share)


@dataclass
class Member(Generic[P]):
    """One of the queues."""

    table: Table
    name: str
    scanner: QueueScanner[P]
    #: Whether its last share was ended by a limit, so that a backlog waits; and the number of that share.
    full: bool = False
    served: int = 0
    #: What was wrong with it when it was last looked at, and until when it is set aside.
    failure: SqlQueueError | None = None
    not_before: float = 0.0

    @property
    def next_look(self) -> float:
        return max(self.scanner.pace.next_look, self.not_before)


#: Looks at one queue, for at most so many rows.
Look = Callable[[Member[P], Search[P], Limits], P | None]


def take_turns(
    session: JointSession,
    members: Sequence[Member[P]],
    limits: Limits,
    look: Look[P],
    found: list[tuple[Member[P], P | None]],
) -> None:
    """Look at each of these queues in the open transaction, each for a fair share of what those before it have left.

    :param found: is given what each queue has, also where a later one fails.
    :raises QueueFails: something is wrong with one of them.
    """
    session.connection.hurry(LOCKED_MS)
    rows, size, held = limits.rows, limits.bytes, False
    members = in_order(members, limits)
    for at, member in enumerate(members):
        if rows <= 0 or size <= 0:
            return
        left = len(members) - at
        share = Limits(rows=-(-rows // left), bytes=-(-size // left))
        try:
            queue = session.at(member.table)
            part = look(member, lambda find, queue=queue: find(queue), share)  # type: ignore[misc] # mypy knows no defaults of a lambda
        except ITS_OWN as error:
            raise QueueFails(member.name, error) from error
        found.append((member, part))
        if part is not None:
            rows, size, held = rows - part.rows.rows, size - part.rows.bytes, True
        elif not held:
            # So who alters an idle queue need not wait until the others' batch is settled.
            session.connection.rollback()
            session.connection.hurry(LOCKED_MS)


def in_order(members: Sequence[Member[P]], limits: Limits) -> list[Member[P]]:
    """Those first that are likely to have few rows, because what they leave goes to the others.

    Where a batch has fewer rows than there are queues, those first that have waited longest.
    """
    if limits.rows < len(members):
        return sorted(members, key=lambda member: member.served)
    return sorted(members, key=lambda member: (member.full, member.served))
