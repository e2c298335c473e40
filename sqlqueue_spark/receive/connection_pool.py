"""The connections of one receiver, each with the queue found on it; one that failed is never used again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlqueue_spark.engines.connections import Target, connect
from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, RowsHeld, TryAgain
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.found import Found
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.queues import Queue

T = TypeVar("T")
F = TypeVar("F", bound=Found)


class ConnectionPool:
    """Lends open queues. A claim keeps the one it was made on until it is settled."""

    def __init__(self, options: SourceOptions, on_first_open: Callable[[Queue], None] | None) -> None:
        self._options = options
        self._target = Target.of(options)
        self._on_first_open = on_first_open
        self._free: list[Queue] = []
        #: The sessions that this stream has had.
        self._sessions: set[int] = set()
        self._closed = False
        self._lock = threading.Lock()
        self._patience = Retry(f"receiving from {options.queue}")
        #: Whether the database was ever reached. Until then the configuration is to blame for an error.
        self.opened_before = False

    def borrow(self) -> Queue:
        """A queue on a connection with no open transaction."""
        with self._lock:
            if self._free:
                return self._free.pop()
        connection = connect(self._target, again=self.opened_before)
        try:
            naming = self._options.naming(self._target.dialect)
            queue = queues.get(connection, self._options.queue, naming)
            self._check_takes_changes(queue)
            queue.announce(self._sessions)
            if self._on_first_open is not None and not self.opened_before:
                self._on_first_open(queue)
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        self.opened_before = True
        return queue

    def _check_takes_changes(self, queue: Queue) -> None:
        """Refuse a readable copy of a database: it locks no row against anybody, as SQL Server ignores the hints there."""
        if queue.table.read_only:
            kind = ConnectionLost if self.opened_before else ConfigurationError
            raise kind(
                f"The database of {queue.table.name} is read-only here, so nothing can be received; let the url lead to the "
                "primary server (the listener of an availability group, without applicationIntent=ReadOnly)."
            )

    def give_back(self, queue: Queue) -> None:
        """Take back a queue whose transaction has ended. When the pool is closed, end its connection."""
        with self._lock:
            if not self._closed:
                self._free.append(queue)
                return
        queue.connection.close()

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[Queue]:
        """A queue for a block that ends its own transaction; after an error its connection is closed."""
        queue = self.borrow()
        try:
            yield queue
        except BaseException:
            queue.connection.close()
            raise
        self.give_back(queue)

    def search(self, find: Callable[[Queue], F | None]) -> F | None:
        """What is found on a queue. The queue stays lent if its transaction holds what was found."""
        queue = self.borrow()
        try:
            found = find(queue)
            held = found is not None and found.queue is not None
            if not held:
                queue.connection.rollback()
        except BaseException:
            queue.connection.close()
            raise
        if not held:
            self.give_back(queue)
        return found

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Queue]:
        """A queue for a block that is one transaction."""
        with self.borrowed() as queue, queue.connection.transaction():
            yield queue

    def retried(self, action: Callable[[], T]) -> T:
        """Run a step. When the database gives way, run it again on a new connection, within a limit of time."""

        def worth_it(error: TryAgain) -> bool:
            return not isinstance(error, RowsHeld) and self.opened_before

        # The other connections have most likely died too.
        return self._patience.retried(action, worth_it, on_failure=lambda _: self._end_free())

    def close(self) -> None:
        """End the connections: now those that are not lent, the others when they are given back."""
        self._closed = True
        self._end_free()

    def _end_free(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for queue in free:
            queue.connection.close()
