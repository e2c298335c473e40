"""The connections of one receiver, each with the queues found on it; one that failed is never used again."""

from __future__ import annotations

import contextlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from sqlqueue_spark.engines.connect import Connection, Target, connect
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, RowsHeld, TryAgain
from sqlqueue_spark.options import NO_TRANSACTION, SourceOptions
from sqlqueue_spark.receive.found import Batch
from sqlqueue_spark.receive.offset import JointOffset, Offset
from sqlqueue_spark.receive.queue_session import Session
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.queues import Queue

T = TypeVar("T")
B = TypeVar("B", bound=Batch)
S = TypeVar("S", bound=Session)


class SessionPool(ABC, Generic[S]):
    """Lends sessions. A claim keeps the one it was made on until it is settled."""

    def __init__(self, options: SourceOptions, on_first_open: Callable[[Queue], None] | None) -> None:
        """:param on_first_open: is given each queue when it is opened for the first time."""
        self._options = options
        self._target = Target.of(options)
        self._on_first_open = on_first_open
        self._free: list[S] = []
        #: The sessions that this stream has had, as the server numbers them.
        self._sessions: set[int] = set()
        self._closed = False
        self._lock = threading.Lock()
        self._patience = Retry(f"receiving from {options.title}")
        #: Whether the database was ever reached. Until then the configuration is to blame for an error.
        self.opened_before = False

    @abstractmethod
    def _open(self, connection: Connection) -> S:
        """What the stream reads, on a new connection."""

    @abstractmethod
    def check_belongs(self, offset: Offset, session: S) -> None:
        """Refuse a checkpoint that does not belong to this stream.

        :raises ConfigurationError: the offset was written for another queue or database.
        """

    def borrow(self) -> S:
        """A session with no open transaction."""
        with self._lock:
            if self._free:
                return self._free.pop()
        connection = connect(self._target, again=self.opened_before)
        try:
            session = self._open(connection)
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        self.opened_before = True
        return session

    def _opened(self, queue: Queue) -> None:
        """Note that a queue is opened on a connection."""
        self._check_takes_changes(queue)
        queue.announce(self._sessions, workers_take=self._options.transaction_mode == NO_TRANSACTION)

    def _check_takes_changes(self, queue: Queue) -> None:
        """Refuse a readable copy of a database: it locks no row against anybody, as SQL Server ignores the hints there."""
        if queue.table.read_only:
            kind = ConnectionLost if self.opened_before else ConfigurationError
            raise kind(
                f"The database of {queue.table.name} is read-only here, so nothing can be received; let the url lead to the "
                "primary server (the listener of an availability group, without applicationIntent=ReadOnly)."
            )

    def give_back(self, session: S) -> None:
        """Take back a session whose transaction has ended. When the pool is closed, end its connection."""
        with self._lock:
            if not self._closed:
                self._free.append(session)
                return
        session.connection.close()

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[S]:
        """A session for a block that ends its own transaction; after an error its connection is closed."""
        session = self.borrow()
        try:
            yield session
        except BaseException:
            session.connection.close()
            raise
        self.give_back(session)

    def search(self, find: Callable[[S], B | None]) -> B | None:
        """What is found in a session. The session stays lent if its transaction holds what was found."""
        session = self.borrow()
        try:
            found = find(session)
            held = found is not None and found.session is not None
            if not held:
                session.connection.rollback()
        except BaseException:
            session.connection.close()
            raise
        if not held:
            self.give_back(session)
        return found

    @contextlib.contextmanager
    def transaction(self) -> Iterator[S]:
        """A session for a block that is one transaction."""
        with self.borrowed() as session, session.connection.transaction():
            yield session

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
        for session in free:
            session.connection.close()


class ConnectionPool(SessionPool[Queue]):
    """Lends the one queue of a stream."""

    def _open(self, connection: Connection) -> Queue:
        naming = self._options.naming(self._target.dialect)
        queue = queues.get(connection, self._options.one_queue, naming)
        self._opened(queue)
        if self._on_first_open is not None and not self.opened_before:
            self._on_first_open(queue)
        return queue

    def check_belongs(self, offset: Offset, session: Queue) -> None:
        if isinstance(offset, JointOffset):
            raise ConfigurationError(
                f"The checkpoint belongs to a stream over several queues, not to {session.name} alone; give the option queues, "
                f"which may also list one, such as {json.dumps([self._options.queue])}."
            )
        if offset.queue != session.name:
            raise ConfigurationError(
                f"The checkpoint belongs to the queue {offset.queue}, not to {session.name}; "
                "give every queue a checkpoint of its own, or correct the option queue."
            )
