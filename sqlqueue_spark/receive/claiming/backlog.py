"""How many rows wait behind the last claim, and how old the oldest is: as last seen, less what went since."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlqueue_spark.messages.header_json import time_sent
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.offset import Json
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queues import Queue


class Backlog:
    """Looks what waits, at most once an interval. What is claimed until the next look is subtracted."""

    def __init__(self, interval: timedelta, clock: Callable[[], float]) -> None:
        self._interval = interval.total_seconds()
        self._clock = clock
        self._next_look = 0.0
        #: The row behind which the last look has counted.
        self._last = LOWEST
        #: What waits, as Spark reports it; None before the first look.
        self.seen: Json | None = None
        #: When the last look was, by the clock, and by the time of this machine.
        self.looked, self.looked_at = 0.0, datetime.min.replace(tzinfo=UTC)

    @property
    def due(self) -> bool:
        return self._clock() >= self._next_look

    def look(self, queue: Queue, last: int) -> None:
        """Look what waits above the row ``last``."""
        self._next_look = self._clock() + self._interval
        if (waiting := queue.waiting(last)) is None:
            self.is_empty()
            return
        sent = time_sent(waiting.headers)
        age = max(0, int((waiting.now - sent).total_seconds())) if sent else None
        self._last = last
        self._saw(waiting.rows, age)

    def is_empty(self) -> None:
        self._saw(0, 0)

    def claimed(self, rows: QueueRows) -> None:
        """Subtract rows that a batch has now, where the last look has counted them."""
        last, both = self._last, filter(len, (rows.live, rows.expired))
        since = sum(len(each if each.first > last else each.between(last + 1, HIGHEST)) for each in both)
        if self.seen is not None and since:
            left = max(0, self.seen["rows"] - since)
            self.seen = {"rows": left, "oldestSeconds": self.seen["oldestSeconds"] if left else 0}

    def told(self, since: float) -> Json | None:
        """What waits; with the time of the look, if that was before ``since``. None where it is not known."""
        if self.seen is None or self.looked >= since:
            return self.seen
        return {**self.seen, "lookedAt": f"{self.looked_at:%Y-%m-%dT%H:%M:%SZ}"}

    def _saw(self, rows: int, age: int | None) -> None:
        self.seen = {"rows": rows, "oldestSeconds": age}
        self.looked, self.looked_at = self._clock(), datetime.now(UTC)
