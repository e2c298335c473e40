"""Receiving for a Spark that does not say how far it is, as Spark before 4.2: its readers are only asked for the newest
offset.

What was planned is done when Spark asks again, because a batch that fails ends the query. A new process learns from its
first plan which batch was the last one. Until then it may have claimed rows which that batch had processed but did not
live to delete: then it gives its claim back, deletes them, and locks again what is left of the claim, as in a replay. What
is on a stage it leaves alone until then.
"""

from __future__ import annotations

import secrets

from sqlqueue_spark.receive.destructive_read import DestructiveReceiver
from sqlqueue_spark.receive.offset import INITIAL, Json
from sqlqueue_spark.receive.receiver import Receiver
from sqlqueue_spark.receive.slices import Slice


class ReceiverBeforeSpark42:
    """Says for Spark which batch was the last one that it has logged as done."""

    def __init__(self, receiver: Receiver | DestructiveReceiver, max_rows: int) -> None:
        self._receiver = receiver
        self._max_rows = max_rows
        #: The last batch that is done; None while this process does not know.
        self._done: Json | None = None
        self._planned: Json | None = None

    def initial(self) -> Json:
        """The offset before the first batch; asked for only where there is none yet."""
        self._done = INITIAL
        return INITIAL

    def latest(self) -> Json:
        """Settle the batch that was planned last, then claim the next rows and return their offset.

        :returns: the last batch's own when there is nothing to claim, or, in a process that does not know it yet, the
            offset before the first batch: the batch that Spark then runs is empty.
        """
        if self._planned is not None:
            self._done, self._planned = self._planned, None
        newest = self._receiver.latest(self._done or INITIAL, self._max_rows, sure=self._done is not None)
        if self._done is None and newest != INITIAL:
            # What the last batch left may be all there is: then this would be that batch's offset, and no news to Spark.
            return {**newest, "process": secrets.token_hex(8)}
        return newest

    def plan(self, start: Json, end: Json) -> list[Slice]:
        """The slices of the batch that ends with ``end``; those of a batch that was not claimed here are locked again."""
        if start != self._done:
            self._receiver.finish(start, rows=end != INITIAL)
            self._done = start
        self._planned = end
        return [] if end == INITIAL else self._receiver.plan(start, end)

    def settle(self, end: Json) -> None:
        """Settle the batch that ends with ``end`` if it is still held. Calling again is harmless."""
        self._receiver.settle(end)

    def close(self) -> None:
        """Give back what is held and end the connections."""
        self._receiver.close()
