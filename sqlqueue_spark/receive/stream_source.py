"""What every stream asks of its source, whichever way the source receives: the newest offset, a plan, the end of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlqueue_spark.receive.offset import Json, Offset
from sqlqueue_spark.receive.slices import Task


class StreamSource(Protocol):
    """The source of one stream. It opens nothing until it is first asked; every method is harmless when repeated.

    None stands for the offset before the first batch.
    """

    def latest(self, start: Offset | None, max_rows: int | None, *, sure: bool = True) -> Offset | None:
        """Finish the last batch, look for the next rows, and return their offset; ``start`` itself when there are none.

        :param start: the last batch that Spark has logged as done.
        :param max_rows: most rows of the batch; None is everything that is there now.
        :param sure: whether Spark has said that ``start`` is that batch. Else what is on the stage may belong to a later
            batch that is logged.
        """

    def plan(self, start: Offset | None, end: Offset | None) -> Sequence[Task]:
        """The slices of the batch that ends with ``end``."""

    def finish(self, start: Offset | None, *, rows: bool) -> None:
        """Finish the batch that ends with ``start``, whichever process has begun it.

        :param rows: whether the batch that follows has rows of this queue.
        """

    def settle(self, end: Offset | None) -> None:
        """Settle the batch that ends with ``end`` if it is held."""

    def stop_at_present_end(self) -> None:
        """Receive nothing that arrives from now on (``Trigger.AvailableNow``)."""

    def waiting(self) -> Json | None:
        """How many rows wait behind the present batch and how old the oldest is, as last seen; asks no database."""

    def close(self) -> None:
        """Give back what is held and end the connections."""
