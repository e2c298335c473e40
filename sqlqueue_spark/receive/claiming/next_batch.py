"""The next batch of a stream: the rows of each queue, whether the stream holds them or has only seen them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits, BearableRows
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.in_transit import Forwarder
from sqlqueue_spark.receive.offset import Offset, next_serial
from sqlqueue_spark.tables.queues import Queue


@dataclass
class NextBatch:
    """The rows of a batch, of each queue, and the offsets between which it lies."""

    start: Offset | None
    end: Offset
    parts: Sequence[QueueRows]
    #: The session whose open transaction holds the rows; None where this stream holds none of them.
    session: QueueSession | None = None

    @property
    def count(self) -> int:
        """How many rows there are, with the expired ones."""
        return sum(part.count for part in self.parts)

    def follow(self, start: Offset | None) -> None:
        """Become the batch after ``start``. The rows may have been found before that batch was known."""
        self.start, self.end = start, self.end.saying(serial=next_serial(start))

    def release(self) -> None:
        """Give the rows back, so that any consumer can take them. Never raises."""
        if self.session is not None:
            self.session.connection.close()


class BatchMaker(ABC):
    """Makes a batch of the rows that looks at the queues find: a claim, or a plan that holds nothing."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self.forwarder = Forwarder(options, clock)
        #: Whether this run ends at the rows that were there when it began (``Trigger.AvailableNow``).
        self.bounded = False
        #: The most rows of a batch that the server can bear.
        self.bearable = BearableRows()

    @abstractmethod
    def find(self, queue: Queue, after: int, up_to: int, limits: BatchLimits) -> QueueRows | None:
        """Look for rows above ``after`` and up to ``up_to``, within limits; None when there are none."""

    @abstractmethod
    def make(
        self, session: QueueSession, start: Offset | None, turn: Callable[..., list[QueueRows]]
    ) -> NextBatch | None:
        """Make a batch of what a turn finds; None where it finds nothing.

        :param turn: looks at each queue in turn. It may be called again after a rollback; with ``again=True``
            it looks once more where it has just looked.
        :raises QueueFails: something is wrong with one queue; the batch can be made without it.
        """

    def note(self, batch: NextBatch) -> None:  # noqa: ARG002 -- for makers that tell batches apart
        """Note that Spark is told of a batch."""
        self.bearable.borne()
