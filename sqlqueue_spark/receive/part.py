"""The rows of one queue in a batch, and the queue on the connection whose open transaction holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlqueue_spark.receive.claim import Claimed, delete
from sqlqueue_spark.receive.scan_positions import Head
from sqlqueue_spark.tables.queues import Queue


@dataclass
class Part:
    """Rows that are locked. After a replay they may be fewer than the offset names."""

    queue: Queue
    rows: Claimed
    #: The Ids of some dozens of the rows that the offset names, by RowVersion.
    witnesses: Mapping[int, str] = field(default_factory=dict)
    #: The open transaction has deleted the rows already. Others see that only when it is committed.
    deleted: bool = False
    #: A limit ended the claim, not the end of the queue.
    full: bool = False

    @property
    def name(self) -> str:
        """The canonical name of the queue."""
        return self.queue.name

    @property
    def last(self) -> int:
        """The highest RowVersion that was claimed."""
        return max(runs.last for runs in (self.rows.live, self.rows.expired) if runs)

    def mark(self, head: Head) -> None:
        """Tell ``head`` which rows were claimed: late rows can stand anywhere but there."""
        head.claimed(self.rows)

    def release(self) -> None:
        """Do nothing: whoever holds the transaction gives back the rows of all its queues."""

    def delete(self) -> None:
        """Delete the rows in the open transaction, if that is not done yet.

        :raises ClaimLost: rows that were locked are gone; the caller must not commit.
        """
        if not self.deleted:
            delete(self.queue, self.rows)
