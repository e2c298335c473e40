"""Receives for Spark before 4.2, which asks only for the newest offset and does not say which batch it has logged as done.

A batch that fails ends the query. So when Spark asks again, the batch that was planned last is done. A new process learns
only from its first plan which batch was the last one. Before that plan it may claim rows that the last batch has processed
and its process did not live to delete. It then gives its claim back, deletes these rows, and locks again what is left of
the claim, as in a replay. Before that plan it also leaves alone what is on a stage.
"""

from __future__ import annotations

import secrets

from sqlqueue_spark.receive.destructive_read import DestructiveReceiver
from sqlqueue_spark.receive.offset import INITIAL, Json
from sqlqueue_spark.receive.receiver import Receiver
from sqlqueue_spark.receive.slices import Slice


class ReceiverBeforeSpark42:
    """Works out for the receiver which batch Spark has logged last as done, because Spark does not say."""

    def __init__(self, receiver: Receiver | DestructiveReceiver, max_rows: int) -> None:
        self._receiver = receiver
        self._max_rows = max_rows
        #: The last batch that is done; None while this process does not know it.
        self._done: Json | None = None
        self._planned: Json | None = None

    def initial(self) -> Json:
        """The offset before the first batch. Spark asks for it only where the checkpoint has no offset yet."""
        self._done = INITIAL
        return INITIAL

    def latest(self) -> Json:
        """Settle the batch that was planned last, then claim the next rows and return their offset.

        :returns: the last batch's offset when there is nothing to claim. A process that does not know it yet returns the
            offset before the first batch: Spark then runs an empty batch.
        """
        if self._planned is not None:
            self._done, self._planned = self._planned, None
        newest = self._receiver.latest(self._done or INITIAL, self._max_rows, sure=self._done is not None)
        if self._done is None and newest != INITIAL:
            # The claim may have just the rows that the last batch left. Its offset would then be that batch's own, and no
            # news to Spark.
            return {**newest, "process": secrets.token_hex(8)}
        return newest

    def plan(self, start: Json, end: Json) -> list[Slice]:
        """The slices of the batch that ends with ``end``. If this process does not hold its rows, it locks them again."""
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
