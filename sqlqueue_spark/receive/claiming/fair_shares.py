"""One look at each queue of a stream, in one transaction: in which order, and how many rows each may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.receive.claiming.batch_limits import BatchLimits
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.next_batch import QueueRows, setting_aside
from sqlqueue_spark.receive.claiming.queue_scanner import QueueScanner, Search
from sqlqueue_spark.tables.queues import Queue

#: Looks at one queue within limits.
Look = Callable[[QueueScanner, Search, BatchLimits], QueueRows | None]


def take_turns(
    session: QueueSession,
    scanners: Sequence[QueueScanner],
    limits: BatchLimits,
    look: Look,
    looked: list[tuple[QueueScanner, QueueRows | None]],
) -> None:
    """Look at each queue in the open transaction. Each may have a fair share of what those before it have
    left.

    :param looked: is given what each queue has, also where a later one fails.
    :raises QueueFails: something is wrong with one of several queues.
    """
    session.hurry()
    # Those first that are likely to have few rows, because what they leave goes to the others. Where a batch
    # has fewer rows than there are queues, those come first that have waited longest.
    enough = limits.rows >= len(scanners)
    scanners = sorted(scanners, key=lambda each: (enough and each.full, each.served))
    for at, scanner in enumerate(scanners):
        if limits.rows <= 0 or limits.bytes <= 0:
            return
        held = any(part is not None and part.locked for _, part in looked)
        with setting_aside(session, scanner.name):
            part = look(scanner, _search(session, scanner.table, held=held), limits.share(len(scanners) - at))
        looked.append((scanner, part))
        if part is not None:
            rows, size = limits.rows - part.rows.rows, limits.bytes - part.rows.bytes
            limits = replace(limits, rows=rows, bytes=size)


def _search(session: QueueSession, table: Table, *, held: bool) -> Search:
    """:param held: whether the transaction holds rows of other queues already."""

    def search(find: Callable[[Queue], QueueRows | None]) -> QueueRows | None:
        part = find(session.at(table))
        if not held and (part is None or not part.locked):
            # A statement that alters an idle queue need not wait until the batch of the others is settled.
            session.connection.rollback()
            session.hurry()
        return part

    return search
