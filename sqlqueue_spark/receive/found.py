"""What a look at the queue finds for the next batch, whether the stream then holds the rows or not."""

from __future__ import annotations

from typing import Protocol, TypeVar

from sqlqueue_spark.receive.claim import Claimed, Limits
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.scan_positions import Head
from sqlqueue_spark.tables.queues import Queue


class Found(Protocol):
    """The rows of a batch, and the offsets between which it lies."""

    start: Offset | None
    end: Offset
    rows: Claimed
    #: A limit ended the look, not the end of the queue.
    full: bool

    @property
    def last(self) -> int:
        """The highest RowVersion that was found."""

    @property
    def queue(self) -> Queue | None:
        """The queue whose open transaction holds the rows; None where this stream does not hold them."""

    def follow(self, start: Offset | None) -> None:
        """Become the batch after ``start``, whichever batch the rows were found behind."""

    def mark(self, head: Head) -> None:
        """Tell ``head`` what was found, so that it knows where the next look begins."""

    def release(self) -> None:
        """Give the rows back to everybody. Never raises."""


F_co = TypeVar("F_co", bound=Found, covariant=True)


class Find(Protocol[F_co]):
    """A way to look for rows above ``after`` and up to ``up_to``; None when there are none."""

    def __call__(
        self, queue: Queue, start: Offset | None, after: int, up_to: int, limits: Limits, /
    ) -> F_co | None: ...
