"""Claiming the next batch while Spark works on the present one: the claim hides behind the read.

Only where the present claim was cut off by a limit, so that a backlog is known to wait; and only above its last
row, so that two claims of one stream never want the same row, even when the first one's connection is lost.
"""

from __future__ import annotations

import logging
import threading
from typing import Generic, TypeVar

from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.queues import Queue
from sqlqueue_spark.receive.claiming import Limits
from sqlqueue_spark.receive.finding import Find, Found
from sqlqueue_spark.receive.pool import Pool

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Found)


class Ahead(Generic[F]):
    """One claim that is being made on another thread."""

    def __init__(self, pool: Pool, find: Find[F], present: F, up_to: int, limits: Limits) -> None:
        self._pool = pool
        self._find = find
        self._present = present
        self._up_to = up_to
        self._limits = limits
        self._held: F | None = None
        self._given_up = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._claim, name="sqlqueue-claim-ahead", daemon=True)
        self._thread.start()

    def take(self) -> F | None:
        """The claim, once it is made; None where nothing was there or the database gave way."""
        self._thread.join()
        held, self._held = self._held, None
        return held

    def give_up(self) -> None:
        """Release the claim, now or as soon as it is made."""
        with self._lock:
            self._given_up = True
            held, self._held = self._held, None
        if held is not None:
            held.release()

    def _claim(self) -> None:
        held = None
        try:
            queue = self._pool.borrow()
            try:
                held = self._find(queue, self._present.end, self._present.last, self._up_to, self._limits)
            except BaseException:
                queue.connection.close()
                raise
            if held is None or not held.keeps_queue:
                self._end_with(queue)
        except SqlQueueError as error:
            log.info("claim_ahead_failed queue=%s: %s", self._present.end["queue"], error)
        with self._lock:
            if not self._given_up:
                self._held, held = held, None
        if held is not None:
            held.release()

    def _end_with(self, queue: Queue) -> None:
        """Give a queue back, or close it where nobody would: who gave up may have closed the pool since."""
        with self._lock:
            if not self._given_up:
                self._pool.give_back(queue)
                return
        queue.connection.close()


def worthwhile(present: Found, up_to: int) -> bool:
    """Whether rows are known to wait behind a claim."""
    return present.full and present.last < up_to
