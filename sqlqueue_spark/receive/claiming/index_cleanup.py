"""Removes index entries of deleted rows of a queue, beside neighbours that would step over them.

A database leaves the index entries of deleted rows to a cleanup of its own, which runs now and then
(PostgreSQL: about once a minute). Until then each receive of a neighbour walks through the pages of all rows
that the stream has drained since. So beside neighbours the stream asks for the cleanup itself, in the
background, where the engine has a statement for it and the login the right. Why and how often:
docs/decisions/headroom.md.
"""

import threading
from collections.abc import Callable

from sqlqueue_spark import plain_text
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)

#: How many deleted rows make a cleanup worth it, its part of the time, and its rest after an error.
_ROWS, _SHARE, _REST_SECONDS = 20_000, 0.1, 60.0


class IndexCleanup:
    """Cleans one queue's indexes now and then, over a session of its own."""

    def __init__(self, pool: ConnectionPool, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock
        #: How many rows were claimed since the last cleanup; those of the last claim are not settled yet.
        self.rows = 0
        self._not_before = clock()
        #: How long the last one took. Of two the shorter one counts: one may have waited for a lock.
        self._took = _REST_SECONDS * _SHARE
        self._thread: threading.Thread | None = None

    def begin_when_worth_it(self, queue: Queue) -> None:
        """Begin a cleanup if enough rows were deleted since the last one; returns at once."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or self.rows < _ROWS or self._clock() < self._not_before:
            return
        self.rows = 0
        self._thread = threading.Thread(
            target=self._clean, args=(queue,), name="sqlqueue-index-cleanup", daemon=True
        )
        self._thread.start()

    def _clean(self, queue: Queue) -> None:
        began = self._clock()
        try:
            with self._pool.borrowed() as session:
                cleaned = Queue(session.connection, queue.table).clean_indexes()
            seconds = self._clock() - began
            rest = min(seconds, self._took) / _SHARE if cleaned else _REST_SECONDS
            self._not_before, self._took = self._clock() + rest, seconds
            log.debug("index_cleaned queue=%s seconds=%.2f", queue.table.name, seconds)
        except SqlQueueError as error:
            log.info("index_not_cleaned queue=%s: %s", queue.table.name, error)
            self._not_before = self._clock() + _REST_SECONDS
