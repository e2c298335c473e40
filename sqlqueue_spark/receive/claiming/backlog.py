"""How many rows wait behind the last claim, and how old the oldest is, as last seen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sqlqueue_spark.messages.message import time_sent
from sqlqueue_spark.receive.offset import Json
from sqlqueue_spark.tables.queues import Queue


class Backlog:
    """Looks what waits, at most once an interval.

    :param clock: seconds of any steady clock.
    """

    def __init__(self, interval: timedelta, clock: Callable[[], float]) -> None:
        self._interval = interval.total_seconds()
        self._clock = clock
        self._next_look = 0.0
        #: As Spark reports it; None before the first look.
        self.seen: Json | None = None

    @property
    def due(self) -> bool:
        return self._clock() >= self._next_look

    def look(self, queue: Queue, last: int) -> None:
        """Look what waits above the row ``last``."""
        self._next_look = self._clock() + self._interval
        waiting = queue.waiting(last)
        if waiting is None:
            self.is_empty()
            return
        sent = time_sent(waiting.headers)
        age = max(0, int((waiting.now - sent).total_seconds())) if sent else None
        self.seen = {"rows": waiting.rows, "oldestSeconds": age}

    def is_empty(self) -> None:
        self.seen = {"rows": 0, "oldestSeconds": 0}
