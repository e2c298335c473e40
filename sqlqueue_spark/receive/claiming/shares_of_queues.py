"""Which queue of a stream comes first, and how many rows of a batch each may have."""

from collections.abc import Callable, Iterator, Sequence

from sqlqueue_spark.receive.claiming.batch_size import BatchLimits
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.queue_scanner import QueueScanner, Turn
from sqlqueue_spark.receive.claiming.set_aside import setting_aside

#: Looks at one queue.
Look = Callable[[QueueScanner, Turn], QueueRows | None]


def take_turns(
    session: QueueSession, scanners: Sequence[QueueScanner], limits: BatchLimits, look: Look
) -> Iterator[tuple[QueueScanner, QueueRows | None]]:
    """Look at each queue in the open transaction. Each may have a fair share of what those before it left.

    :returns: what each queue has, once it is looked at.
    :raises QueueFails: something is wrong with one of several queues.
    """
    session.hurry()
    # Those first that are likely to have few rows, because what they leave goes to the others. Where a batch
    # has fewer rows than there are queues, those come first that have waited longest.
    enough = limits.rows >= len(scanners)
    scanners = sorted(scanners, key=lambda each: (enough and each.full, each.served))
    held = False
    for at, scanner in enumerate(scanners):
        if limits.rows <= 0 or limits.bytes <= 0:
            return
        with setting_aside(session, scanner.name):
            share = limits.share(len(scanners) - at)
            part = look(scanner, Turn(session, session.at(scanner.table), share, held))
        yield scanner, part
        if part is not None:
            held |= part.locked
            limits = limits.less(part.count, part.bytes)
