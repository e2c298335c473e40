"""The connections of a stream over several queues: each has all the queues, so that one transaction holds a whole batch."""

from __future__ import annotations

from collections.abc import Callable

from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.messages.addresses import Address, Table
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.connection_pool import SessionPool
from sqlqueue_spark.receive.offset import JointOffset, Offset
from sqlqueue_spark.receive.queue_list import opened, shown
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.database_facts import database
from sqlqueue_spark.tables.queues import Queue


class JointSession:
    """The queues of one stream on one connection. A queue is opened when it is first asked for."""

    def __init__(self, connection: Connection, pool: JointPool) -> None:
        self.connection = connection
        self._pool = pool
        self._open: dict[Table, Queue] = {}

    @property
    def name(self) -> str:
        return self._pool.title

    def at(self, table: Table) -> Queue:
        """The queue of a table.

        :raises QueueError: there is no such table.
        """
        if table not in self._open:
            queue = queues.at(self.connection, table)
            if queue is None:
                address = shown(self.connection, table)
                raise queues.missing(self.connection, table, address, "in this database", "the queue name")
            self._pool.opened(queue)
            self._open[table] = queue
        return self._open[table]

    def named(self, name: str) -> Queue | None:
        """The queue of this name, also one that the stream reads no more: a batch may have rows of it."""
        known = [table for table, its in self._pool.names.items() if its == name]
        address = Address.parse(name)
        gone = Table(table=address.table, schema=address.schema or "", catalog=address.catalog)
        try:
            return self.at(known[0] if known else gone)
        except QueueError:
            return None

    def reads(self, name: str) -> bool:
        return name in self._pool.names.values()

    def rollback(self) -> None:
        """End the transaction. Statements wait for locks again as long as the options say."""
        self.connection.rollback()
        if not self.connection.dialect.lock_timeout_ends_with_transaction:
            self.connection.hurry(None)

    def forget(self, table: Table) -> None:
        """Open a queue anew when it is asked for again: there may be another table of this name by then."""
        self._open.pop(table, None)


class JointPool(SessionPool[JointSession]):
    """Lends sessions with all the queues of a stream."""

    def __init__(self, options: SourceOptions, on_first_open: Callable[[Queue], None] | None) -> None:
        super().__init__(options, on_first_open)
        self.title = options.title
        #: The canonical names of the queues that are read now, by their tables.
        self.names: dict[Table, str] = {}
        self._seen: set[str] = set()
        self._database = ""

    def _open(self, connection: Connection) -> JointSession:
        if not self.opened_before:
            self._database = database(connection)
            self.list(connection)
        return JointSession(connection, self)

    def list(self, connection: Connection) -> None:
        """Find out which queues are read now.

        :raises QueueError: a queue of a list is not there.
        """
        found = opened(connection, self._options)
        for queue in found:
            if queue.name not in self._seen:
                self._check_takes_changes(queue)
                self._seen.add(queue.name)
                if self._on_first_open is not None:
                    self._on_first_open(queue)
        self.names = {queue.table.table: queue.name for queue in found}

    def refresh(self) -> None:
        """Find out which queues a pattern matches now."""
        with self.borrowed() as session:
            self.list(session.connection)
            session.connection.rollback()

    def opened(self, queue: Queue) -> None:
        """Note that a queue is opened on a connection."""
        self._opened(queue)

    def check_belongs(self, offset: Offset, session: JointSession) -> None:
        """Refuse a checkpoint of another database, or of one queue that is not among those of the stream.

        A batch over several queues is finished in all its queues, also in those that the stream reads no more.
        """
        elsewhere = {Address.parse(part.queue).catalog for part in offset.parts} - {self._database}
        if elsewhere and not session.connection.dialect.reaches_other_databases:
            raise ConfigurationError(
                f"The checkpoint belongs to queues of the database {elsewhere.pop()}, and the url leads to {self._database}; "
                "correct the option url, or give a new checkpoint folder."
            )
        if (
            isinstance(offset, JointOffset)
            or session.reads(offset.queue)
            or session.named(offset.queue) is None
        ):
            return
        raise ConfigurationError(
            f"The checkpoint belongs to the queue {offset.queue}, which is not among those of this stream ({self.title}); add it "
            "for the first start, or give a new checkpoint folder."
        )
