"""Receives for Spark before 4.2, which asks for the newest offset and does not say which batch is done.

A batch that fails ends the query. So when Spark asks again, the batch that was planned last is done. A new
process learns only from its first plan which batch was the last one. Before that plan it may claim rows that
the last batch has processed and its process did not live to delete. It then gives its claim back, settles
that batch, and locks again what is left of the claim, as in a replay. Before that plan it also leaves alone
what is on a stage.
"""

from collections.abc import Sequence

from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.reading.slices import Task
from sqlqueue_spark.receive.receiver import Receiver


class ReceiverBeforeSpark42:
    """Works out for the source which batch Spark has logged last as done, because Spark does not say."""

    def __init__(self, source: Receiver, max_rows: int) -> None:
        self._source = source
        self._max_rows = max_rows
        #: The last batch that is done, and the last one that was planned; they count once they are known.
        self._done: Offset | None = None
        self._planned: Offset | None = None
        self._known = False

    def initial(self) -> None:
        """Note that Spark asks for the offset before the first batch: the checkpoint has no offset yet."""
        self._known = True

    def latest(self) -> Offset | None:
        """Settle the batch that was planned last, then claim the next rows and return their offset.

        :returns: the last batch's offset when there is nothing to claim. A process that does not know it yet
            returns the offset before the first batch: Spark then runs an empty batch.
        """
        self._done = self._planned
        return self._source.latest(self._done, self._max_rows, sure=self._known)

    def plan(self, start: Offset | None, end: Offset | None) -> Sequence[Task]:
        if not self._known or start != self._done:
            self._source.finish(start, rows=end is not None)
            self._done, self._known = start, True
        self._planned = end
        return self._source.plan(start, end)
