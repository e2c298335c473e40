"""The next batch of a stream: the rows of each queue, whether the stream holds them or has only seen them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlqueue_spark.errors import ClaimLost
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits, BearableRows
from sqlqueue_spark.receive.claiming.claim import Claimed
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.in_transit import Forwarder
from sqlqueue_spark.receive.offset import Offset, next_serial
from sqlqueue_spark.tables.queues import Queue


@dataclass
class QueueRows:
    """The rows of one queue in a batch. After a replay they may be fewer than the offset names."""

    queue: Queue
    rows: Claimed
    #: The Ids of some dozens of the rows that the offset names, by RowVersion.
    witnesses: Mapping[int, str] = field(default_factory=dict)
    #: The open transaction has deleted the rows already. Others see that only when it is committed.
    deleted: bool = False
    #: The rows are locked. In mode ``none`` they were only seen.
    locked: bool = True

    @property
    def name(self) -> str:
        """The canonical name of the queue."""
        return self.queue.name

    @property
    def last(self) -> int:
        """The highest RowVersion among the rows."""
        return max(runs.last for runs in (self.rows.live, self.rows.expired) if runs)

    def offset(self, identity: str) -> Offset:
        """What the offset says of this queue; ``identity`` is its table's."""
        live, expired = self.rows.live, self.rows.expired
        return Offset(
            queue=self.name, identity=identity, live=live, expired=expired, witnesses=self.witnesses
        )

    def delete(self) -> None:
        """Delete the rows in the open transaction, if that is not done yet.

        :raises ClaimLost: more rows were deleted than are locked, or fewer; the caller must not commit.
        """
        if self.deleted:
            return
        queue, rows = self.queue, self.rows
        if (deleted := queue.delete(rows.live) + queue.delete(rows.expired)) != rows.rows:
            raise ClaimLost(
                f"Deleting from {queue.table.name} found {deleted} of {rows.rows} locked rows, so nothing "
                "was deleted; another session changes rows without locking them: stop that."
            )


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
        return sum(part.rows.rows for part in self.parts)

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
        self, session: QueueSession, start: Offset | None, turn: Callable[[], list[QueueRows]]
    ) -> NextBatch | None:
        """Make a batch of what a turn finds; None where it finds nothing.

        :param turn: looks at each queue in turn. It may be called again after the transaction was rolled
            back.
        :raises QueueFails: something is wrong with one queue; the batch can be made without it.
        """

    def note(self, batch: NextBatch) -> None:  # noqa: ARG002 -- for makers that tell batches apart
        """Note that Spark is told of a batch."""
        self.bearable.borne()
