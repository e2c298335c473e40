"""Claims the next batch while Spark works on the present one: the time of the claim hides behind the read.

A claim ahead is made only where a limit ended the present claim, so that a backlog is likely to wait. It begins above the
present claim's last row. So two claims of one stream never want the same row, even when the first one's connection is lost.
"""

from __future__ import annotations

import logging
import threading
from typing import Generic, TypeVar

from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.receive.claim import Limits
from sqlqueue_spark.receive.connection_pool import ConnectionPool
from sqlqueue_spark.receive.look import Find, Found
from sqlqueue_spark.tables.queues import Queue

log = logging.getLogger(__name__)

#: After so long a claim ahead that nobody asks for is given back: the next trigger may be an hour away.
UNASKED_SECONDS = 10.0
#: The same where a program tells when a batch is done: until it does, somebody may well ask for the claim.
UNTOLD_SECONDS = 60.0
#: The same once the present batch is known to be done.
IDLE_SECONDS = 2.0

F = TypeVar("F", bound=Found)


class ClaimAhead(Generic[F]):
    """One claim that another thread makes."""

    def __init__(
        self,
        pool: ConnectionPool,
        find: Find[F],
        present: F,
        up_to: int,
        limits: Limits,
        *,
        told: bool = False,
    ) -> None:
        """:param told: whether a program tells when a batch is done."""
        self._pool = pool
        self._find = find
        self._present = present
        self._up_to = up_to
        self._limits = limits
        self._told = told
        self._held: F | None = None
        self._given_up = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._thread = threading.Thread(target=self._claim, name="sqlqueue-claim-ahead", daemon=True)
        self._thread.start()

    def take(self) -> F | None:
        """Wait until the claim is made, and return it; None where no row was there, it failed or was given back."""
        self._thread.join()
        return self._taken()

    def give_up(self) -> None:
        """Release the claim, now or as soon as it is made."""
        with self._lock:
            self._given_up = True
        if (held := self._taken()) is not None:
            held.release()

    def give_up_within(self, seconds: float) -> None:
        """Release the claim unless somebody asks for it within ``seconds``. A later call replaces the one before."""
        timer = threading.Timer(seconds, self._unasked)
        timer.name, timer.daemon = "sqlqueue-claim-unasked", True
        with self._lock:
            if self._given_up:
                return
            before, self._timer = self._timer, timer
        if before is not None:
            before.cancel()
        timer.start()

    def _taken(self) -> F | None:
        with self._lock:
            held, self._held = self._held, None
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        return held

    def _unasked(self) -> None:
        with self._lock:
            waits = self._held is not None
        self.give_up()
        if waits:
            log.info("claim_ahead_given_back queue=%s: no trigger asked for it", self._present.end.queue)

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
            log.info("claim_ahead_failed queue=%s: %s", self._present.end.queue, error)
        with self._lock:
            if not self._given_up:
                self._held, held = held, None
            expires = self._held is not None and self._timer is None
        if held is not None:
            held.release()
        if expires:
            self.give_up_within(UNTOLD_SECONDS if self._told else UNASKED_SECONDS)

    def _end_with(self, queue: Queue) -> None:
        """Give a queue back. After :meth:`give_up` close it instead: the pool may be closed, and nobody else would do it."""
        with self._lock:
            if not self._given_up:
                self._pool.give_back(queue)
                return
        queue.connection.close()


def worthwhile(present: Found, up_to: int) -> bool:
    """Whether rows are likely to wait above the present claim."""
    return present.full and present.last < up_to
