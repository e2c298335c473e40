"""Another database, to which a store-and-forward job sends: one queue, an outbox, and what befalls them."""

from collections import Counter
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from sqlqueue_spark.engines.connect import Target
from sqlqueue_spark.engines.postgresql.connection import PostgresConnection
from sqlqueue_spark.tables.outbox import OutboxTable
from tests.machine.wires import Network

CREATE = "CREATE TABLE {} (id uuid PRIMARY KEY, expires timestamp, headers text NOT NULL, body bytea, seq bigserial UNIQUE)"
_OURS = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


@dataclass
class _Replica:
    """What an asynchronous replica has of the database: its tables, and what was read from them by then."""

    rows: dict[str, bytes]
    read: Counter[int] = field(default_factory=Counter)


class Remote:
    """A database of the same server, with a queue that has its name."""

    def __init__(self, url: str, network: Network, queue: str, endpoint: str) -> None:
        """:param url: that of any database of the server."""
        self.queue = queue
        self._network = network
        self._name = f"{queue}_elsewhere"
        before, _, _ = url.rpartition("/")
        self.url = f"{before}/{self._name}"
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self._name)))
        self._admin = psycopg.connect(self.url, autocommit=True, prepare_threshold=0)
        self.create()
        with PostgresConnection(Target(url=self.url)) as connection, connection.transaction():
            OutboxTable(connection, endpoint).create()
        self._outbox = next(name for name in self._tables() if name != queue)
        self.reset()

    def reset(self) -> None:
        """Make everything as new for the next scenario."""
        self.open()
        if not self.exists:
            self.create()
        #: What stood in a queue that was dropped, and so has arrived.
        self._read = Counter[int]()
        self._replica: _Replica | None = None
        self.was_dropped = False
        self._admin.execute(f'DELETE FROM "{self.queue}"; DELETE FROM "{self._outbox}"', prepare=False)

    def tidy(self) -> None:
        self._admin.execute(f'TRUNCATE "{self.queue}", "{self._outbox}"')

    def close(self) -> None:
        self._admin.close()

    # -- whether it is there -----------------------------------------------------------------------

    @property
    def down(self) -> bool:
        return self._name in self._network.shut

    def shut(self, *, noticed: bool = True) -> None:
        """Let it go down: nobody reaches it."""
        self._network.shut_off(self._name, noticed=noticed)

    def open(self) -> None:
        self._network.shut.discard(self._name)

    def shut_at_commit(self, process: str, *, heard: bool) -> None:
        """Let it go down when a process next commits in it, before or after it hears that."""
        self._network.cut_at_next_commit(process, delivered=heard, down=self._name)

    # -- its queue ---------------------------------------------------------------------------------

    def create(self) -> None:
        self.exists = True
        self._admin.execute(sql.SQL(CREATE).format(sql.Identifier(self.queue)))

    def drop(self) -> None:
        """Let an operator drop the queue; all that was in it has arrived before. Whoever sends to it loses his connection."""
        self._network.cut_off(self._name)
        self._network.notice()
        self._read = self.arrived()
        self._drop()

    def _drop(self) -> None:
        self.exists, self.was_dropped = False, True
        self._admin.execute(f'DROP TABLE "{self.queue}"')

    def arrived(self) -> Counter[int]:
        """How often each message has arrived."""
        if not self.exists:
            return Counter(self._read)
        rows = self._admin.execute(f"""SELECT convert_from(body, 'UTF8')::int FROM "{self.queue}\"""")
        return self._read + Counter(n for (n,) in rows)

    # -- its replica -------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Note the present state as that of an asynchronous replica."""
        rows = {}
        with self._admin.transaction():
            for name in self._tables():
                with (
                    self._admin.cursor() as cursor,
                    cursor.copy(f'COPY "{name}" TO STDOUT (FORMAT binary)') as copy,
                ):
                    rows[name] = b"".join(map(bytes, copy))
        self._replica = _Replica(rows, Counter(self._read))

    def fail_over(self) -> bool:
        """Let the replica take over: every connection breaks, and what was committed since is gone. False if there is none."""
        if self._replica is None:
            return False
        self._network.cut_off(self._name)
        self._network.notice()
        if self.exists != (self.queue in self._replica.rows):
            if self.exists:
                self._drop()
            else:
                self.create()
        with self._admin.transaction(), self._admin.cursor() as cursor:
            for name, rows in self._replica.rows.items():
                cursor.execute(f'DELETE FROM "{name}"')
                with cursor.copy(f'COPY "{name}" FROM STDIN (FORMAT binary)') as copy:
                    copy.write(rows)
        self._read = Counter(self._replica.read)
        return True

    def _tables(self) -> list[str]:
        return [name for (name,) in self._admin.execute(_OURS)]
