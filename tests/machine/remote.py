"""Another database, to which a store-and-forward job sends: its queues, an outbox, and what befalls them."""

from collections import Counter
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.engines.postgresql.connection import PostgresConnection
from sqlqueue_spark.tables.outbox import OutboxTable
from tests.machine.wires import Network

CREATE = (
    "CREATE TABLE {} (id uuid PRIMARY KEY, expires timestamp, headers text NOT NULL, body bytea, seq "
    "bigserial UNIQUE)"
)
#: How a database answers that takes nothing, or a table that takes no message.
READ_ONLY, LOCKED, FULL, WITHOUT_OUTBOX, SWALLOWS = (
    "is read-only",
    "keeps its queue locked",
    "is full",
    "has lost its outbox",
    "has a queue that swallows what is inserted",
)
REFUSALS = (READ_ONLY, LOCKED, FULL, WITHOUT_OUTBOX, SWALLOWS)
_FUNCTIONS = """
CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE 'no space left on device' USING ERRCODE = '53100'; END $$;
CREATE FUNCTION swallows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
"""
_TRIGGER = 'CREATE TRIGGER refuses BEFORE INSERT ON "{}" FOR EACH ROW EXECUTE FUNCTION {}()'
#: What an outbox knows gets older by days.
LATER_KNOWN = """UPDATE "{}" SET "DispatchedAt" = "DispatchedAt" - {} * interval '1 day'"""
#: A schema with queues of the same names and an outbox, to which options of another meaning lead.
ASIDE = "aside"
_OURS = """
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'aside')
"""
_READ = """SELECT {}, convert_from(body, 'UTF8')::int FROM {}"""


@dataclass
class _Replica:
    """What an asynchronous replica has of the database: its tables, and what was read from them by then."""

    rows: dict[str, bytes]
    read: Counter[int] = field(default_factory=Counter)


class Remote:
    """A database of the same server.

    It has a queue of its name, and others in which messages arrive only under other options: one that has
    another database's name, and both in the schema ``aside``.
    """

    def __init__(self, url: str, network: Network, queue: str, endpoint: str, other: str) -> None:
        """:param url: that of any database of the server.
        :param other: the queue of the same name as that of another database.
        """
        self.queue = queue
        self._own = f"public.{queue}"
        self._aside = [(other, f"public.{other}"), *((each, f"{ASIDE}.{each}") for each in (queue, other))]
        self._refusal: str | None = None
        self._locking: psycopg.Connection | None = None
        self._network = network
        self._name = f"{queue}_elsewhere"
        before, _, _ = url.rpartition("/")
        self.url = f"{before}/{self._name}"
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self._name)))
        self._admin = psycopg.connect(self.url, autocommit=True, prepare_threshold=0)
        self._admin.execute(_FUNCTIONS, prepare=False)
        self.create()
        self._admin.execute(sql.SQL(CREATE).format(sql.Identifier(other)))
        self._admin.execute(f"CREATE SCHEMA {ASIDE}")
        for each in (queue, other):
            self._admin.execute(sql.SQL(CREATE).format(sql.Identifier(ASIDE, each)))
        with PostgresConnection(Target(url=self.url)) as connection, connection.transaction():
            self._outbox = _created(OutboxTable(connection, endpoint))
            _created(OutboxTable(connection, endpoint, ASIDE))
        self.reset()

    def reset(self) -> None:
        """Make everything as new for the next scenario."""
        self.open()
        self.accept()
        if not self.exists:
            self.create()
        #: What stood in a queue that was dropped, and so has arrived.
        self._read = Counter[int]()
        self._replica: _Replica | None = None
        #: What had arrived when the outbox was lost, which knew it.
        self.forgotten = Counter[int]()
        #: Whether the queue was dropped, or swallowed what was inserted: for a time it took no message.
        self.refused_messages = False
        self._admin.execute("; ".join(f"DELETE FROM {each}" for each in self._tables()), prepare=False)

    def tidy(self) -> None:
        self._admin.execute(f"TRUNCATE {', '.join(self._tables())}")

    def close(self) -> None:
        self.accept()
        self._admin.close()

    # -- whether it is there -----------------------------------------------------------------------

    @property
    def down(self) -> bool:
        return self._name in self._network.shut

    def shut(self, *, noticed: bool = True) -> None:
        """Let it go down: no connection reaches it."""
        self._network.shut_off(self._name, noticed=noticed)

    def open(self) -> None:
        self._network.shut.discard(self._name)

    def shut_at_commit(self, process: str, *, heard: bool) -> None:
        """Let it go down when a process next commits in it, before or after it hears that."""
        self._network.cut_at_next_commit(process, delivered=heard, down=self._name)

    # -- whether it takes what it is given ---------------------------------------------------------

    def refuse(self, how: str) -> bool:
        """Let it answer, and refuse; False where it does already, or has no queue."""
        if self._refusal is not None or not self.exists:
            return False
        self._refusal = how
        self._cut()
        if how == READ_ONLY:
            self._set("default_transaction_read_only = on")
        elif how == LOCKED:
            self._locking = psycopg.connect(self.url)
            self._locking.execute(f'LOCK TABLE "{self.queue}" IN EXCLUSIVE MODE')
        elif how == FULL:
            for name in (self.queue, self._outbox):
                self._admin.execute(_TRIGGER.format(name, "is_full"))
        elif how == WITHOUT_OUTBOX:
            self.forgotten += self.everywhere()
            self._admin.execute(
                f'DELETE FROM "{self._outbox}"; ALTER TABLE "{self._outbox}" RENAME TO lost', prepare=False
            )
        else:
            self.refused_messages = True
            self._admin.execute(_TRIGGER.format(self.queue, "swallows"))
        return True

    def accept(self, *these: str) -> bool:
        """Let it take messages again, if it refuses them, in one of these ways where they are given."""
        how = self._refusal
        if how is None or (these and how not in these):
            return False
        self._refusal = None
        self._cut()
        if how == READ_ONLY:
            self._set("default_transaction_read_only = off")
        elif how == LOCKED:
            assert self._locking is not None
            self._locking.close()
        elif how == WITHOUT_OUTBOX:
            self._admin.execute(f'ALTER TABLE lost RENAME TO "{self._outbox}"')
        else:
            for name in (self.queue, self._outbox):
                self._admin.execute(f'DROP TRIGGER IF EXISTS refuses ON "{name}"')
        return True

    def _set(self, what: str) -> None:
        """Change a setting of the database, which holds for sessions that begin afterwards."""
        self._admin.execute(sql.SQL(f"ALTER DATABASE {{}} SET {what}").format(sql.Identifier(self._name)))
        self._network.forget(self._name)

    def _cut(self) -> None:
        self._network.cut_off(self._name)
        self._network.notice()

    # -- its queue ---------------------------------------------------------------------------------

    def create(self) -> None:
        self.exists = True
        self._admin.execute(sql.SQL(CREATE).format(sql.Identifier(self.queue)))

    def drop(self) -> None:
        """Let an operator drop the queue; all that was in it has arrived before.

        Each process that sends to it loses its connection.
        """
        self.accept()
        self._cut()
        self._read = self.arrived()
        self._drop()

    def _drop(self) -> None:
        self.exists, self.refused_messages = False, True
        self._admin.execute(f'DROP TABLE "{self.queue}"')

    def arrived(self) -> Counter[int]:
        """How often each message has arrived in its queue."""
        return self._read + Counter(n for _, n in self._rows(own=True, aside=False).elements())

    def aside(self) -> Counter[tuple[str, int]]:
        """How often each message has arrived in another queue of the database, by that queue's name."""
        return self._rows(own=False, aside=True)

    def everywhere(self) -> Counter[int]:
        """How often each message has arrived in the database."""
        return self._read + Counter(n for _, n in self._rows(own=True, aside=True).elements())

    def _rows(self, *, own: bool, aside: bool) -> Counter[tuple[str, int]]:
        tables = [(self.queue, self._own)] if own and self.exists else []
        tables += self._aside if aside else []
        if not tables:
            return Counter()
        text = " UNION ALL ".join(_READ.format(f"'{name}'", table) for name, table in tables)
        return Counter((name, n) for name, n in self._admin.execute(text))

    def let_days_pass(self, days: int) -> None:
        """Make what the outbox knows older. A replica is never days behind."""
        self._replica = None
        name = "lost" if self._refusal == WITHOUT_OUTBOX else self._outbox
        self._admin.execute(LATER_KNOWN.format(name, days))

    # -- its replica -------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Note the present state as that of an asynchronous replica. One without an outbox is none."""
        if self._refusal == WITHOUT_OUTBOX:
            return
        rows = {}
        with self._admin.transaction():
            for name in self._tables():
                with (
                    self._admin.cursor() as cursor,
                    cursor.copy(f"COPY {name} TO STDOUT (FORMAT binary)") as copy,
                ):
                    rows[name] = b"".join(map(bytes, copy))
        self._replica = _Replica(rows, Counter(self._read))

    def fail_over(self) -> bool:
        """Let the replica take over: every connection breaks, and what was committed since is gone.

        False if there is none.
        """
        if self._replica is None:
            return False
        self.accept()
        self._cut()
        if self.exists != (self._own in self._replica.rows):
            if self.exists:
                self._drop()
            else:
                self.create()
        with self._admin.transaction(), self._admin.cursor() as cursor:
            for name, rows in self._replica.rows.items():
                cursor.execute(f"DELETE FROM {name}")
                with cursor.copy(f"COPY {name} FROM STDIN (FORMAT binary)") as copy:
                    copy.write(rows)
        self._read = Counter(self._replica.read)
        return True

    def _tables(self) -> list[str]:
        return [name for (name,) in self._admin.execute(_OURS)]


def _created(outbox: OutboxTable) -> str:
    """Create an outbox; returns the name of its table."""
    outbox.create()
    return outbox.table.table
