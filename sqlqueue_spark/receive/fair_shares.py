"""One look at each queue of a stream, in one transaction: in which order, and how many rows each may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.receive.batch_limits import BatchLimits
from sqlqueue_spark.receive.connection_pool import QueueSession
from sqlqueue_spark.receive.next_batch import QueueRows, setting_aside
from sqlqueue_spark.receive.queue_scanner import QueueScanner, Search
from sqlqueue_spark.tables.queues import Queue


@dataclass
class Member:
    """One of the queues."""

    table: Table
    name: str
    scanner: QueueScanner
    #: Whether a limit ended its last share, so that a backlog waits; and the number of that share.
    full: bool = False
    served: int = 0
    #: What was wrong with it when it was last looked at, and until when it is set aside.
    failure: SqlQueueError | None = None
    not_before: float = 0.0

    @property
    def next_look(self) -> float:
        """When it is time to look at it, by the clock."""
        return max(self.scanner.pace.next_look, self.not_before)


#: Looks at one queue within limits.
Look = Callable[[Member, Search, BatchLimits], QueueRows | None]


def take_turns(
    session: QueueSession,
    members: Sequence[Member],
    limits: BatchLimits,
    look: Look,
    looked: list[tuple[Member, QueueRows | None]],
) -> None:
    """Look at each queue in the open transaction. Each may have a fair share of what those before it have left.

    :param looked: is given what each queue has, also where a later one fails.
    :raises QueueFails: something is wrong with one of several queues.
    """
    session.hurry()
    members = in_order(members, limits)
    for at, member in enumerate(members):
        if limits.rows <= 0 or limits.bytes <= 0:
            return
        held = any(part is not None and part.locked for _, part in looked)
        with setting_aside(session, member.name):
            part = look(member, _search(session, member.table, held=held), limits.share(len(members) - at))
        looked.append((member, part))
        if part is not None:
            rows, size = limits.rows - part.rows.rows, limits.bytes - part.rows.bytes
            limits = replace(limits, rows=rows, bytes=size)


def _search(session: QueueSession, table: Table, *, held: bool) -> Search:
    """:param held: whether the transaction holds rows of other queues already."""

    def search(find: Callable[[Queue], QueueRows | None]) -> QueueRows | None:
        found = find(session.at(table))
        if not held and (found is None or not found.locked):
            # A statement that alters an idle queue need not wait until the batch of the others is settled.
            session.connection.rollback()
            session.hurry()
        return found

    return search


def in_order(members: Sequence[Member], limits: BatchLimits) -> list[Member]:
    """Those first that are likely to have few rows, because what they leave goes to the others.

    Where a batch has fewer rows than there are queues, those come first that have waited longest.
    """
    if limits.rows < len(members):
        return sorted(members, key=lambda member: member.served)
    return sorted(members, key=lambda member: (member.full, member.served))
