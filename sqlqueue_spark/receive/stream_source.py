"""The source of a stream: what Spark may ask of it, and what every mode of receiving answers alike."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool
from sqlqueue_spark.receive.claiming.next_batch import BatchMaker
from sqlqueue_spark.receive.claiming.scanner import Scanner
from sqlqueue_spark.receive.holding.held_batch import HeldBatch
from sqlqueue_spark.receive.offset import Json, Offset
from sqlqueue_spark.receive.reading.slices import Task
from sqlqueue_spark.tables.queues import Queue


class StreamSource(ABC):
    """The source of one stream. It opens nothing until it is first asked. Calls may be repeated.

    The offset before the first batch is None.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        on_first_open: Callable[[Queue], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """:param on_first_open: is given each queue when the stream opens it for the first time."""
        self._options = options
        self._maker = self._batch_maker(clock, sleep)
        self._pool = ConnectionPool(options, on_first_open)
        self._scanner = Scanner(options, self._pool, self._maker, clock, sleep)
        #: The batch whose rows are held. In mode ``none`` that is only one that was begun in another mode.
        self._batch = HeldBatch(options, self._pool, self._scanner)

    @abstractmethod
    def _batch_maker(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> BatchMaker:
        """What makes a batch of the rows that are found."""

    @abstractmethod
    def latest(self, start: Offset | None, max_rows: int | None, *, sure: bool = True) -> Offset | None:
        """Finish the last batch, look for the next rows, and return their offset; ``start`` itself when there
        are none.

        :param start: the last batch that Spark has logged as done.
        :param max_rows: most rows of the batch; None is everything that is there now.
        :param sure: whether Spark has said that ``start`` is that batch. Otherwise what is on the stage may
            belong to a later batch that is logged.
        """

    @abstractmethod
    def plan(self, start: Offset | None, end: Offset | None) -> Sequence[Task]:
        """The tasks of the batch that ends with ``end``; locks its rows again if they are not held here."""

    @abstractmethod
    def finish(self, start: Offset | None, *, rows: bool) -> None:
        """Finish the batch that ends with ``start``, also one of a process that has ended.

        :param rows: whether the batch that follows has rows of this queue.
        """

    def settle(self, end: Offset | None) -> None:
        """Delete and commit the held claim if ``end`` is its offset."""
        self._batch.settle(end)

    def stop_at_present_end(self) -> None:
        """Receive nothing that arrives from now on (``Trigger.AvailableNow``)."""
        self._pool.retried(self._scanner.stop_at_present_end)

    def waiting(self) -> Json | None:
        """How many rows wait behind the present batch, and how old the oldest is, as last seen."""
        return self._maker.moved_on.tell(self._scanner.waiting())

    def close(self) -> None:
        """Settle the held batch if ``doneFile`` says so, else give it back; then end the connections."""
        try:
            self._batch.close()
        finally:
            self._scanner.close()
            self._pool.close()
