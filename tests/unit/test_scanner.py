"""When the next look for late rows is due."""

from types import SimpleNamespace

import pytest

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claim import Claimed
from sqlqueue_spark.receive.connection_pool import ConnectionPool
from sqlqueue_spark.receive.scanner import Scanner
from sqlqueue_spark.row_set import LOWEST

OPTIONS = SourceOptions.parse(
    {"url": "postgresql://h/d", "queue": "orders", "pollInterval": "1ms", "neighbourHeadroom": "0"}
)


class SlowPool(ConnectionPool):
    """The first connection takes a minute, as with a database that has to wake up; it is kept."""

    def __init__(self, now):
        super().__init__(OPTIONS, None)
        self._now = now
        self._seconds = 60.0

    def borrow(self):
        self._now[0] += self._seconds
        self._seconds = 0.0
        return SimpleNamespace(connection=SimpleNamespace(rollback=lambda: None, close=lambda: None))

    def give_back(self, queue):
        pass


@pytest.mark.parametrize("seconds", [0.25, 0.5])
def test_time_to_connect_does_not_delay_late_rows(seconds):
    """They are looked for by how long a look took."""
    now, looks = [0.0], []

    def find(queue, start, after, up_to, limits):
        now[0] += seconds
        looks.append(after)
        return Found() if after == LOWEST else None

    class Found:
        last, session, rows, full, count = 7, None, Claimed(), False, 0

        def mark(self, head):
            head.passed(self.last)

    seeker = Scanner(OPTIONS, SlowPool(now), find, lambda: now[0], lambda _: None)
    seeker._queue.backlog._next_look = 1e9
    assert seeker.next(None, 10) is not None
    now[0] += 20 * seconds - 0.1
    assert seeker.next(None, 10) is None
    now[0] += 0.2
    assert seeker.next(None, 10) is not None
    assert looks == [LOWEST, 7, LOWEST]
