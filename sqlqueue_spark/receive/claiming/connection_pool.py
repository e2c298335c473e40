"""The connections of one stream, each with the stream's queues. One that failed is never used again."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.open_connection import Connection, Target, connect
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, RowsHeld, TryAgain
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import NO_TRANSACTION, SourceOptions
from sqlqueue_spark.receive.claiming.queue_list import opened
from sqlqueue_spark.tables import queue_table, queues
from sqlqueue_spark.tables.queues import Queue

T = TypeVar("T")

#: How often a session may have opened queues beside those that are read now. The server keeps a lock for each
#: until the session ends, and so do we what we know of it.
_MOST_GONE = 100


class QueueSession:
    """The queues of one stream on one connection. A queue is opened when it is first asked for."""

    def __init__(self, connection: Connection, pool: "ConnectionPool") -> None:
        self.connection = connection
        #: Whether the stream reads a list of queues, so that one of them may fail alone.
        self.several = pool.several
        self._pool = pool
        self._open: dict[Table, Queue] = {}
        #: How often it has opened a queue.
        self.openings = 0

    @property
    def name(self) -> str:
        return self._pool.title

    def at(self, table: Table) -> Queue:
        """The queue of a table.

        :raises QueueError: there is no such table.
        """
        if table not in self._open or self._open[table].guarded != self._pool.guards(table):
            if (queue := queues.at(self.connection, table, guarded=self._pool.guards(table))) is None:
                raise queue_table.missing(self.connection, table, "in this database", "the queue name")
            self.keep(table, queue)
        return self._open[table]

    def keep(self, table: Table, queue: Queue) -> None:
        """Keep a queue that was just opened on this connection."""
        self._pool.announce(queue)
        self._open[table] = queue
        self.openings += 1

    def named(self, name: str) -> Queue | None:
        """The queue of this canonical name; None where there is none.

        The stream may no longer read it: a batch can have rows of a queue that was taken off the list.
        """
        table = next((table for table, its in self._pool.names.items() if its == name), None)
        if table is None:
            table = Table.from_text(name)
        # Asked before: an error would end the transaction, which may hold rows of other queues.
        if not self.reads(name) and not queue_table.has_database(self.connection, table):
            return None
        try:
            return self.at(table)
        except QueueError:
            return None

    def reads(self, name: str) -> bool:
        """Whether the stream receives new rows of the queue of this canonical name."""
        return name in self._pool.names.values()

    def forget(self, table: Table) -> None:
        """Open a queue anew when it is asked for again: there may be another table of this name by then."""
        self._open.pop(table, None)

    def hurry(self) -> None:
        """With several queues, let no statement of this transaction wait long for a lock."""
        if self.several:
            self.connection.hurry(queue_table.LOCKED_MS)

    def patient(self) -> None:
        """Let statements wait for locks again as long as the options say."""
        if self.several:
            self.connection.hurry(None)

    def rollback(self) -> None:
        """End the transaction. Statements wait for locks again as long as the options say."""
        self.connection.rollback()
        if not self.connection.dialect.lock_timeout_ends_with_transaction:
            self.patient()


class ConnectionPool:
    """Lends sessions. A claim keeps the one it was made on until it is settled."""

    def __init__(self, options: SourceOptions, on_first_open: Callable[[Queue], None] | None) -> None:
        self._options = options
        self._target = Target.of(options)
        self._on_first_open = on_first_open
        self.several = options.several
        #: The canonical names of the queues that are read now, by their tables.
        self.names: dict[Table, str] = {}
        #: Those of them that an option names, or whose owner is no stranger.
        self._trusted: set[Table] = set()
        self._seen: set[str] = set()
        self._free: list[QueueSession] = []
        #: The sessions that this stream has had, as the server numbers them.
        self._sessions: set[int] = set()
        self._closed = False
        self._lock = threading.Lock()
        self._patience = Retry(f"receiving from {options.title}")
        #: Whether the database was ever reached. Until then the configuration is to blame for an error.
        self.opened_before = False

    @property
    def title(self) -> str:
        """What the stream reads, for logs and errors: one queue by its canonical name, once that is known."""
        return self._options.title if self.several else next(iter(self.names.values()), self._options.title)

    def borrow(self) -> QueueSession:
        """A session with no open transaction."""
        with self._lock:
            if self._free:
                return self._free.pop()
        connection = connect(self._target, again=self.opened_before)
        try:
            session = QueueSession(connection, self)
            if not (self.several and self.opened_before):  # an error of the one queue ends the call at once
                self._list(session)
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        self.opened_before = True
        return session

    def refresh(self) -> None:
        """Find out which queues a pattern matches now."""
        with self.borrowed() as session:
            self._list(session)
            session.connection.rollback()

    def _list(self, session: QueueSession) -> None:
        """Find out which queues are read now.

        :raises QueueError: a queue of a list is not there.
        """
        found = opened(session.connection, self._options)
        self.names = {queue.table.table: queue.name for queue in found}
        self._trusted = {queue.table.table for queue in found if not queue.guarded}
        for queue in found:
            self._check_takes_changes(queue)
            if not self.several:
                session.keep(queue.table.table, queue)
            if queue.name not in self._seen and self._on_first_open is not None:
                session.hurry()
                self._on_first_open(queue)
                session.patient()
            self._seen.add(queue.name)

    def guards(self, table: Table) -> bool:
        """Whether a queue may have been found by a pattern, and be a stranger's. A checkpoint names none."""
        return self._options.queue_pattern is not None and table not in self._trusted

    def announce(self, queue: Queue) -> None:
        """Check a queue that was opened on a connection, and tell other streams that this one reads it."""
        self._check_takes_changes(queue)
        queue.announce(self._sessions, workers_take=self._options.transaction_mode == NO_TRANSACTION)

    def _check_takes_changes(self, queue: Queue) -> None:
        """Refuse a readable copy of a database: SQL Server ignores lock hints there and locks no row."""
        if queue.table.read_only:
            kind = ConnectionLost if self.opened_before else ConfigurationError
            raise kind(
                f"The database of {queue.table.name} is read-only here, so nothing can be received; let the "
                "url lead to the primary server (on PostgreSQL name all hosts; on SQL Server the listener "
                "of an availability group, without applicationIntent=ReadOnly)."
            )

    def give_back(self, session: QueueSession) -> None:
        """Take back a session whose transaction has ended.

        When the pool is closed, or the session has opened many queues that are gone, end its connection.
        """
        with self._lock:
            if not self._closed and session.openings <= len(self.names) + _MOST_GONE:
                self._free.append(session)
                return
        session.connection.close()

    @contextlib.contextmanager
    def lent(self) -> Iterator[QueueSession]:
        """A session that the caller keeps after the block; after an error its connection is closed."""
        session = self.borrow()
        try:
            yield session
        except BaseException:
            session.connection.close()
            raise

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[QueueSession]:
        """As :meth:`lent`, for a block that ends its own transaction: the session is given back then."""
        with self.lent() as session:
            yield session
        self.give_back(session)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[QueueSession]:
        """A session for a block that is one transaction."""
        with self.borrowed() as session, session.connection.transaction():
            yield session

    def retried(self, action: Callable[[], T]) -> T:
        """Run a step. If the database gives way, run it again on a new connection, within a limit of time."""

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
