"""What a look at the queue finds for the next batch, whether the stream then holds the rows or not."""

from __future__ import annotations

from typing import Protocol, TypeVar

from sqlqueue_spark.receive.claim import Claimed, Limits
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.queue_session import Session
from sqlqueue_spark.receive.scan_positions import Head
from sqlqueue_spark.tables.queues import Queue


class Batch(Protocol):
    """The rows of a batch, and the offsets between which it lies."""

    start: Offset | None
    end: Offset
    #: A limit ended the look, not the end of a queue.
    full: bool

    @property
    def count(self) -> int:
        """How many rows were found."""

    @property
    def session(self) -> Session | None:
        """The session whose open transaction holds the rows; None where this stream does not hold them."""

    def follow(self, start: Offset | None) -> None:
        """Become the batch after ``start``, whichever batch the rows were found behind."""

    def release(self) -> None:
        """Give the rows back to everybody. Never raises."""


class Found(Protocol):
    """Rows of one queue: a batch, or a part of one."""

    #: A limit ended the look, not the end of the queue.
    full: bool

    @property
    def rows(self) -> Claimed:
        """The rows."""

    @property
    def last(self) -> int:
        """The highest RowVersion that was found."""

    def mark(self, head: Head) -> None:
        """Tell ``head`` what was found, so that it knows where the next look begins."""

    def release(self) -> None:
        """Give the rows back to everybody. Never raises."""


class Alone(Batch, Found, Protocol):
    """The batch of a stream that reads one queue."""


F_co = TypeVar("F_co", bound=Found, covariant=True)


class Find(Protocol[F_co]):
    """A way to look for rows above ``after`` and up to ``up_to``; None when there are none."""

    def __call__(
        self, queue: Queue, start: Offset | None, after: int, up_to: int, limits: Limits, /
    ) -> F_co | None: ...
