"""The rows of one micro-batch, held in one open transaction until Spark proves the batch is done."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlqueue_spark import faults
from sqlqueue_spark.errors import ClaimLost
from sqlqueue_spark.offsets import Offset
from sqlqueue_spark.options import ATOMIC, RECEIVE_ONLY
from sqlqueue_spark.queues import Queue
from sqlqueue_spark.receive.claiming import Claimed, Head, Limits, claim
from sqlqueue_spark.receive.relocking import delete, relock

log = logging.getLogger(__name__)

Json = dict[str, Any]

#: How many rows of a claim vouch for it.
_WITNESSES = 32


@dataclass
class Held:
    """A claim, and the queue whose connection's open transaction holds its rows.

    ``start`` and ``end`` are the offsets that the batch lies between, as Spark knows them; ``rows`` are those that
    are locked, after a replay fewer than the offset names. ``full`` says that a limit ended the claim, not the queue.
    """

    queue: Queue
    start: Json
    end: Json
    offset: Offset
    rows: Claimed
    full: bool = False
    #: The rows are deleted in the open transaction already, which others see only once it is committed.
    deleted: bool = False
    #: The transaction is gone, and every lock with it.
    lost: bool = False

    @property
    def last(self) -> int:
        """The highest RowVersion that was claimed."""
        return max(runs.last for runs in (self.rows.live, self.rows.expired) if runs)

    @property
    def keeps_queue(self) -> bool:
        """Its connection's transaction is what holds the rows."""
        return True

    def mark(self, head: Head) -> None:
        """Later rows can stand anywhere but where these do."""
        head.claimed(self.rows)

    def delete(self) -> None:
        """Delete the rows in the open transaction. Calling again is harmless.

        :raises ClaimLost: rows that were locked are gone; nothing was deleted.
        """
        if self.deleted:
            return
        try:
            delete(self.queue, self.rows)
        except ClaimLost:
            self.release()
            raise
        self.deleted = True

    def settle(self, send: Callable[[], None]) -> None:
        """Delete the rows, send what goes with them, and commit. Errors as :meth:`delete`, and as ``send``."""
        faults.step(faults.COMMIT_LOGGED)
        self.delete()
        send()
        faults.step(faults.DELETED)
        self.queue.connection.commit()
        faults.step(faults.COMMITTED)

    def settle_again(self, queue: Queue) -> int:
        """Delete in ``queue``'s transaction what is left after the own one was lost: the rows were processed. How many."""
        left = relock(queue, replace(self.offset, live=self.rows.live, expired=self.rows.expired))
        if left is None:
            return 0
        delete(queue, left)
        log.warning("settled_after_loss queue=%s deleted=%d gone=%d: rows that are gone were deleted by our own lost "
                    "commit, or taken by another consumer and are processed twice",
                    queue.table.name, left.rows, self.rows.rows - left.rows)  # fmt: skip
        return left.rows

    def release(self) -> None:
        """Give the rows back to everybody. Never raises."""
        self.lost = True
        self.queue.connection.close()


def hold(
    queue: Queue, start: Json, after: int, up_to: int, limits: Limits, *, stage: str = ""
) -> Held | None:
    """Claim the next rows; None when there are none, and then no transaction is left open.

    Rows that have all expired are deleted here and now, without a batch.

    :param stage: where the batch's own messages are to wait until it is settled.
    """
    while True:
        claimed = claim(queue, after, up_to, limits)
        if claimed.live:
            break
        if not claimed.expired:
            queue.connection.rollback()
            return None
        queue.delete(claimed.expired)
        queue.connection.commit()
        log.info("expired queue=%s deleted=%d", queue.table.name, len(claimed.expired))
    offset = Offset(
        queue=queue.table.name,
        identity=queue.identity() or "",
        live=claimed.live,
        expired=claimed.expired,
        witnesses=queue.ids(claimed.live.spread(_WITNESSES)),
        mode=ATOMIC if stage else RECEIVE_ONLY,
        stage=stage,
    )
    log.info("claimed queue=%s rows=%d expired=%d bytes=%d first=%d last=%d", queue.table.name, len(claimed.live),
             len(claimed.expired), claimed.bytes, claimed.live.first, claimed.live.last)  # fmt: skip
    held = Held(queue, start, offset.to_json(), offset, claimed, full=claimed.full)
    if queue.connection.dialect.reads_see_open_deletes:
        held.delete()
    return held
