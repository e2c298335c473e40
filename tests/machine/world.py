"""The world outside the stream: the tables of one database, senders, neighbours, operators,
and a ledger of all messages.

A message is known by its number, which is its body. Everybody who does something to a message notes it in the
ledger: who sent it, who took it for good, who destroyed it. So the ledger says which messages may come twice
or not at all.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.engines.postgresql.connection import PostgresConnection
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.servicecontrol import EXCEPTION_INFO, FAILED_QUEUE, RETRY_ID
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.waiting.delayed_mover import DelayedMover
from sqlqueue_spark.tables.delayed import DelayedTable
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.subscriptions import SubscriptionTable, table_of
from tests.machine.remote import CREATE, LATER_KNOWN, Remote
from tests.machine.wires import Network
from tests.support.neighbour.statements import POSTGRESQL

SOURCES = ("orders", "returns")
#: A queue that may appear beside them, and the pattern that matches all of them, also when they are renamed.
APPEARS = "more"
PATTERN = rf"({'|'.join((*SOURCES, APPEARS))})( \d)?"
DESTINATIONS = ("billing", "shipping")
#: Where messages in transit go.
ELSEWHERE = "elsewhere"
#: Where messages go that fail.
ERROR = "error"
#: Both queues that the option ``errorQueue`` may name.
ERRORS = (ERROR, "failed")
#: Where ServiceControl is told of what it had put back and is done.
ACKNOWLEDGED = "acknowledged"
#: Where those of the first source wait that are tried again.
DELAYED = f"{SOURCES[0]}.Delayed"
ENDPOINT = "Machine"
#: The type of events. The second destination has subscribed to it from the beginning, the first one may.
EVENT_TYPE = "Machine.Event"
#: Who stores messages for other databases.
SENDER = "Sales"
#: An operator gives up after these milliseconds.
_ADMIN_WAITS = 10
#: The names of a queue end with this number: to match names by a pattern takes a process.
_MOST_NAMES = 3
_WAY = r',"NServiceBus.SqlServer.ForwardDestination":"\"public\".\"{}\""'
#: Of messages on their way, the queue to which they go.
WAYS = {
    "in transit": ELSEWHERE,
    "in transit to its own queue": SOURCES[0],
    "in transit to another database": DESTINATIONS[1],
}
_ACK_QUEUE = "ServiceControl.Retry.AcknowledgementQueue"
_RETRIED = f',"{_ACK_QUEUE}":"{ACKNOWLEDGED}","{RETRY_ID}":"{{}}"'
_INSERT = """
INSERT INTO {} (id, expires, headers, body)
SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, now() AT TIME ZONE 'UTC' + lasts,
       CASE WHEN way = 'poison' THEN way ELSE '{{"NServiceBus.MessageId":"' || m || '"' || way || '}}' END,
         convert_to(n::text, 'UTF8')
FROM unnest(%s::int[], %s::text[], %s::interval[], %s::text[]) WITH ORDINALITY AS given (n, m, lasts, way, i)
  ORDER BY i
RETURNING convert_from(body, 'UTF8')::int, seq
"""
#: As a .NET endpoint receives: one row, whether it has expired or not.
_TAKE = POSTGRESQL.take.replace("{queue}", "{0}")
_AGE = """
UPDATE {0} SET expires = now() AT TIME ZONE 'UTC' - interval '1 second' WHERE seq = ANY (ARRAY(
    SELECT seq FROM {0} WHERE expires > now() AT TIME ZONE 'UTC' FOR UPDATE SKIP LOCKED))
RETURNING convert_from(body, 'UTF8')::int
"""
#: The days that pass in a step. Rows wait for a database for six days, and an outbox remembers seven.
DAYS = 5
_LATER_WAITING = """
UPDATE {0} SET due = due - %s * interval '1 day' WHERE ctid = ANY (ARRAY(SELECT ctid
  FROM {0} FOR UPDATE SKIP LOCKED)) RETURNING due
"""
#: What no session holds is due.
_TIME_COMES = """
UPDATE {0} SET due = due - interval '7 days' WHERE ctid = ANY (ARRAY(SELECT ctid
  FROM {0} FOR UPDATE SKIP LOCKED)) RETURNING due
"""
_MOVED_BY_OTHERS = """
WITH moved AS (
    DELETE FROM {{0}} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {{0}} FOR UPDATE SKIP LOCKED))
    RETURNING headers, body
)
INSERT INTO "{}" (id, headers, body) SELECT gen_random_uuid(), headers, body FROM moved
RETURNING convert_from(body, 'UTF8')::int
"""
_HELD = """
SELECT convert_from(q.body, 'UTF8')::int FROM {} AS q
JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.transactionid = q.xmax AND l.granted
WHERE l.pid = ANY (%s)
"""
_PAST = """SELECT setval('{0}_seq_seq', greatest(max(q.seq), max(s.last_value))) FROM {0}_seq_seq AS s
  LEFT JOIN {0} AS q ON true"""
_OURS = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


@dataclass
class Ledger:
    """What is known of each message, by the numbers of the messages."""

    #: Committed to a source. A fail-over that loses the commit takes them out again.
    sent: set[int] = field(default_factory=set)
    ids: dict[int, str] = field(default_factory=dict)
    #: How often others took each message and committed.
    taken: Counter[int] = field(default_factory=Counter)
    #: Their time ran out while they were in a source: they may come or not.
    perished: set[int] = field(default_factory=set)
    #: They were sent after their time had run out: they never come.
    stillborn: set[int] = field(default_factory=set)
    #: They may be nowhere: an operator destroyed them, or no promise covers them.
    may_be_lost: set[int] = field(default_factory=set)
    #: They may come more than once, anywhere: others took them when a death had freed them,
    #: or an operator put them back.
    may_double: set[int] = field(default_factory=set)
    #: They are on their way to another queue.
    in_transit: set[int] = field(default_factory=set)
    #: They are on their way to another database: the sink passes them on.
    passed_on: set[int] = field(default_factory=set)
    #: Their headers cannot be read.
    poison: set[int] = field(default_factory=set)
    #: A fail-over undid their settling: they are in their source again, as if they had not been received.
    came_back: set[int] = field(default_factory=set)
    #: ServiceControl has put them back: it is told when they are done.
    retried: set[int] = field(default_factory=set)
    #: They have waited, and were moved back to their source.
    moved_back: set[int] = field(default_factory=set)
    #: The message that stands in a source under a number of the table (``seq``).
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def copy(self) -> "Ledger":
        return Ledger(
            set(self.sent),
            dict(self.ids),
            Counter(self.taken),
            set(self.perished),
            set(self.stillborn),
            set(self.may_be_lost),
            set(self.may_double),
            set(self.in_transit),
            set(self.passed_on),
            set(self.poison),
            set(self.came_back),
            set(self.retried),
            set(self.moved_back),
            dict(self.numbers),
        )


@dataclass
class Snapshot:
    """The database as it was at one commit, and which messages were sent by then."""

    rows: dict[str, bytes]
    sequences: dict[str, int]
    sent: set[int]


@dataclass
class Open:
    """A transaction that another session has open, and the messages that it sends or takes."""

    connection: psycopg.Connection
    source: str
    numbers: list[int]
    seqs: dict[int, int] = field(default_factory=dict)


class World:
    """One database that many scenarios use one after the other."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._tables: list[str] = []
        self._stages = 2
        self.scenarios = 0
        self.network = Network(url)
        self.admin = psycopg.connect(
            url, autocommit=True, prepare_threshold=0, options=f"-c lock_timeout={_ADMIN_WAITS}"
        )
        self._others: list[psycopg.Connection] = []
        for name in self._queues:
            self.admin.execute(sql.SQL(CREATE).format(sql.Identifier(name)))
        with PostgresConnection(Target(url=url)) as connection, connection.transaction():
            OutboxTable(connection, ENDPOINT).create()
            DelayedTable(connection, Table(table=DELAYED, schema="public")).create()
            SubscriptionTable(connection, table_of("public")).create()
        self.now = 0.0
        self._remotes: dict[str, Remote] = {}
        #: The names that queues had which appeared or were renamed.
        self._changed: list[str] = []
        self.reset()

    # -- other databases ---------------------------------------------------------------------------

    @property
    def remotes(self) -> dict[str, Remote]:
        """The other databases, by the destination that each of them has. Only some families have them."""
        if not self._remotes:
            self._remotes = {
                to: Remote(self.url, self.network, to, ENDPOINT, other)
                for to, other in zip(DESTINATIONS, reversed(DESTINATIONS), strict=True)
            }
            with PostgresConnection(Target(url=self.url)) as connection, connection.transaction():
                OutboxTable(connection, SENDER).create()
            self._tables = []
        return self._remotes

    # -- between scenarios -------------------------------------------------------------------------

    def reset(self) -> None:
        """Make everything as new for the next scenario."""
        self.scenarios += 1
        self.story: list[str] = []
        self.ledger = Ledger()
        self.now, self.days = 0.0, 0
        self.takers: list[Open] = []
        self.late: list[Open] = []
        self.dump: psycopg.Connection | None = None
        self.snapshot: Snapshot | None = None
        self.backup: list[tuple[Any, ...]] | None = None
        self._next = itertools.count(1)
        #: What the headers of a message say beside its id, by its number.
        self.says: Callable[[int], str] = lambda _: ""
        #: The error queues that the option has named.
        self.errors = list(ERRORS[:1])
        #: The queues that a pattern matches, by the names that they have now.
        self.sources = list(SOURCES)
        self._as_before()
        for remote in self._remotes.values():
            remote.reset()
        #: Messages that a stream has read and whose locks an injected death has freed.
        self.excused: set[int] = set()
        self.faults: Counter[str] = Counter()
        statements = [f'DELETE FROM "{name}"' for name in self.tables()]
        self.admin.execute(
            "; ".join([*statements, *(f"SELECT setval('{s}_seq_seq', 1, false)" for s in self._queues)]),
            prepare=False,
        )
        self.subscribe(DESTINATIONS[1])

    _queues = (*SOURCES, *DESTINATIONS, ELSEWHERE, *ERRORS, ACKNOWLEDGED)

    def tables(self) -> list[str]:
        """All tables, also the stages that streams have made."""
        if sum(name.endswith(".Outgoing") for name in self._tables) < self._stages:
            self._tables = [name for (name,) in self.admin.execute(_OURS).fetchall()]
        return self._tables

    def tidy(self) -> None:
        """Truncate all tables; to be called now and then, because deleted rows leave their space behind."""
        names = ", ".join(f'"{name}"' for name in self.tables())
        self.admin.execute(f"TRUNCATE {names}")
        for remote in self._remotes.values():
            remote.tidy()

    def close(self) -> None:
        self.heal()
        self.network.close()
        for remote in self._remotes.values():
            remote.close()
        for each in (*self._others, self.admin):
            each.close()

    # -- queues that come and go -------------------------------------------------------------------

    def appear(self, name: str, *, delayed: bool) -> bool:
        """Let an operator create a queue, with a table of delayed messages beside it or without one."""
        if name in self._names():
            return False
        self._changes(name)
        self.admin.execute(sql.SQL(CREATE).format(sql.Identifier(name)))
        if delayed and f"{name}.Delayed" not in self._names():
            with PostgresConnection(Target(url=self.url)) as connection, connection.transaction():
                DelayedTable(connection, Table(table=f"{name}.Delayed", schema="public")).create()
        self.sources.append(name)
        return True

    def drop(self, source: str) -> list[int] | None:
        """Let an operator drop a queue; returns the messages that were in it.

        None when another session works on the table: then the operator gives up.
        """
        lost = self.in_table(source)
        if not self._alone(f'DROP TABLE "{source}"'):
            return None
        self._changes(source)
        self.sources.remove(source)
        self.ledger.may_be_lost.update(lost)
        return list(lost)

    def rename(self, source: str) -> str | None:
        """Let an operator rename a queue, unless a session works on it; returns its new name.

        No queue has had that name before: rows that come back under their old name are another story.
        """
        first = source.partition(" ")[0]
        number = next(n for n in itertools.count(2) if f"{first} {n}" not in self._changed)
        name = f"{first} {number}"
        if number > _MOST_NAMES or not self._alone(f'ALTER TABLE "{source}" RENAME TO "{name}"'):
            return None
        self._changes(source, name)
        self.sources[self.sources.index(source)] = name
        self.ledger.numbers.update(
            {(name, seq): n for (at, seq), n in self.ledger.numbers.items() if at == source}
        )
        return name

    def _names(self) -> set[str]:
        return {name for (name,) in self.admin.execute(_OURS).fetchall()}

    def _changes(self, *names: str) -> None:
        """Note names that change. A replica and a copy of rows are of the tables of before."""
        self._changed += names
        self._tables, self.snapshot, self.backup = [], None, None

    def _as_before(self) -> None:
        """Make the queues of :data:`SOURCES` anew where a scenario has changed some."""
        if not self._changed:
            return
        names = {*self._changed, *SOURCES}
        gone = ", ".join(
            f'"{name}"' for name in (*names, *(f"{each}.Delayed" for each in names - {SOURCES[0]}))
        )
        self.admin.execute(f"DROP TABLE IF EXISTS {gone}")
        for name in SOURCES:
            self.admin.execute(sql.SQL(CREATE).format(sql.Identifier(name)))
        self._changed, self._tables = [], []

    # -- time --------------------------------------------------------------------------------------

    def clock(self) -> float:
        self.now += 1e-4
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def let_days_pass(self) -> None:
        """Make all that waits, and all that outboxes know, older. A replica is never days behind."""
        self.days += DAYS
        self.snapshot = None
        self._run(self.admin, _LATER_WAITING, DELAYED, DAYS)
        for name in self.tables():
            if name.endswith("OutboxData"):
                self.admin.execute(LATER_KNOWN.format(name, DAYS))
        for remote in self._remotes.values():
            remote.let_days_pass(DAYS)

    def tell(self, line: str) -> None:
        self.story.append(line)

    # -- senders -----------------------------------------------------------------------------------

    def send(
        self,
        source: str,
        count: int,
        *,
        lasts: str | None = None,
        same_id: bool = False,
        on_its_way_to: str | None = None,
        poison: bool = False,
        retried: bool = False,
    ) -> list[int]:
        """Let others send messages and commit; returns their numbers."""
        way = "poison" if poison else _RETRIED if retried else ""
        if on_its_way_to is not None:
            way = _WAY.format(on_its_way_to)
        numbers = self._insert(self.admin, source, count, lasts, same_id, way)[0]
        self.ledger.sent.update(numbers)
        if poison:
            self.ledger.poison.update(numbers)
        if retried:
            self.ledger.retried.update(numbers)
        if on_its_way_to == ELSEWHERE:
            self.ledger.in_transit.update(numbers)
        if on_its_way_to == DESTINATIONS[1]:
            self.ledger.passed_on.update(numbers)
        if lasts == "-1 second":
            self.ledger.stillborn.update(numbers)
        return numbers

    def begin_late(self, source: str, count: int) -> list[int]:
        """Let others send messages that get their RowVersions now and are committed later;
        returns the messages' numbers.
        """
        connection = self._other()
        numbers, seqs = self._insert(connection, source, count, None, same_id=False)
        self.late.append(Open(connection, source, numbers, seqs))
        return numbers

    def from_elsewhere(self, count: int) -> list[int]:
        """Make messages that no source here knows, because they are of another source of the query,
        or of its state.
        """
        numbers = [next(self._next) for _ in range(count)]
        self.ledger.ids.update({n: f"m{n}" for n in numbers})
        return numbers

    def end_late(self, *, commit: bool) -> list[int]:
        late = self.late.pop(0)
        self._end(late.connection, commit=commit)
        if commit:
            self.ledger.sent.update(late.numbers)
        return late.numbers

    def age(self) -> list[int]:
        """Let all messages expire that have a time to be received, but not those that a session holds."""
        aged = [n for source in self.sources for (n,) in self._run(self.admin, _AGE, source)]
        self.ledger.perished.update(aged)
        return aged

    def _insert(
        self,
        connection: psycopg.Connection,
        source: str,
        count: int,
        lasts: str | None,
        same_id: bool,
        way: str = "",
    ) -> tuple[list[int], dict[int, int]]:
        numbers = [next(self._next) for _ in range(count)]
        ids = [f"m{numbers[0] if same_id else n}" for n in numbers]
        self.ledger.ids.update(zip(numbers, ids, strict=True))
        ways = [way if way == "poison" else way.format(n) + self.says(n) for n in numbers]
        done = self._run(connection, _INSERT, source, numbers, ids, [lasts] * count, ways)
        self.ledger.numbers.update({(source, seq): n for n, seq in done})
        return numbers, dict(done)

    # -- neighbours --------------------------------------------------------------------------------

    def take(self, source: str, count: int) -> list[int]:
        """Let a neighbour take the next free rows, one by one; his transaction stays open.

        What has expired he drops.
        """
        connection = self._other()
        numbers: list[int] = []
        while len(numbers) < count and (taken := self._run(connection, _TAKE, source)):
            ((_, _, expired, _, body),) = taken
            if not expired:
                numbers.append(int(body))
        self.takers.append(Open(connection, source, numbers))
        return numbers

    def end_take(self, *, commit: bool) -> list[int]:
        taker = self.takers.pop(0)
        self._end(taker.connection, commit=commit)
        if commit:
            self.ledger.taken.update(taker.numbers)
            self.ledger.may_double |= self.excused.intersection(taker.numbers)
        return taker.numbers

    def held_by(self, source: str, pids: list[int]) -> set[int]:
        """The messages whose rows these sessions hold."""
        return {n for (n,) in self._run(self.admin, _HELD, source, pids)}

    # -- movers ------------------------------------------------------------------------------------

    def move_back(self) -> list[int]:
        """Let a mover of ours move back what waits, as if its time had come; returns what it has moved.

        Whatever ends the mover, its connection is closed.
        """
        waited = self.in_table(DELAYED)
        self._run(self.admin, _TIME_COMES, DELAYED)
        process, self.network.process = self.network.process, f"mover {self.now}"
        given = ConnectionOptions.parse({"url": self.url, "lockTimeout": "20ms"})
        owner = Table(table=SOURCES[0], schema="public")
        mover = DelayedMover(options=given, owner=owner, error_queue=ERROR, chosen=[owner])
        try:
            mover.move_due()
        finally:
            mover.close()
            self.network.process = process
            moved = sorted((waited - self.in_table(DELAYED)).elements())
            self.ledger.moved_back.update(moved)
            self.note_numbers()
        return moved

    def moved_by_others(self) -> list[int]:
        """Let a mover of others move back what waits, as rows that get Ids of their own, as in SQL Server."""
        moved = [n for (n,) in self._run(self.admin, _MOVED_BY_OTHERS.format(SOURCES[0]), DELAYED)]
        self.note_numbers()
        return moved

    def note_numbers(self) -> None:
        """Note which message stands in each row of the sources."""
        for source in self.sources:
            self.ledger.numbers.update({(source, seq): n for seq, n in self.row_versions(source)})

    # -- subscribers -------------------------------------------------------------------------------

    def subscribe(self, queue: str, *, begin: bool = True) -> None:
        """Let the endpoint of a queue subscribe to the events, or end that."""
        if begin:
            row = (f'"public"."{queue}"', queue, EVENT_TYPE)
            self.admin.execute(
                'INSERT INTO "SubscriptionRouting" VALUES (%s, %s, %s) ON CONFLICT DO NOTHING', row
            )
        else:
            self.admin.execute('DELETE FROM "SubscriptionRouting" WHERE endpoint = %s', (queue,))

    # -- operators ---------------------------------------------------------------------------------

    def begin_dump(self) -> None:
        """Begin a dump, which reads all tables.

        It stands only in the way of those who want a table for themselves.
        """
        assert self.dump is None
        self.dump = self._other()
        names = ", ".join(f'"{name}"' for name in self.tables())
        self.dump.execute(f"LOCK TABLE {names} IN ACCESS SHARE MODE")

    def end_dump(self) -> None:
        if self.dump is not None:
            self._end(self.dump, commit=True)
            self.dump = None

    def truncate(self, source: str) -> list[int] | None:
        """Let an operator empty a queue, so that its numbers begin again;
        returns the messages that were in it.

        None when another session works on the table: then the operator gives up.
        """
        lost = self.in_table(source)
        if not self._alone(f'TRUNCATE "{source}" RESTART IDENTITY'):
            return None
        self.ledger.may_be_lost.update(lost)
        return list(lost)

    def alter(self, source: str) -> bool:
        """Let an operator change a queue's table, unless a session works on it; returns whether he did."""
        return self._alone(f'ALTER TABLE "{source}" SET (fillfactor = 90)')

    def save_rows(self, source: str) -> list[int]:
        """Let an operator copy the rows of a queue away."""
        self.backup = self.admin.execute(f'SELECT id, expires, headers, body, seq FROM "{source}"').fetchall()
        self.backup_of = source
        return sorted(int(row[3]) for row in self.backup)

    def put_back_rows(self) -> list[int]:
        """Let the operator put back the copied rows that are no longer there,
        under their old numbers and ids.
        """
        assert self.backup is not None
        back = []
        put = sql.SQL(
            "INSERT INTO {} (id, expires, headers, body, seq) VALUES (%s, %s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING"
        ).format(sql.Identifier(self.backup_of))
        for row in self.backup:
            try:
                done = self.admin.execute(put, row)
            except (
                psycopg.errors.LockNotAvailable
            ):  # the row is there, and a stream has deleted it in an open transaction
                continue
            if done.rowcount:
                back.append(int(row[3]))
                self.ledger.numbers[self.backup_of, row[4]] = int(row[3])
        self.ledger.may_double.update(back)
        self.admin.execute(_PAST.format(self.backup_of))
        return back

    def _alone(self, statement: str) -> bool:
        try:
            self.admin.execute(statement)
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    # -- the server --------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Note the present state as that of an asynchronous replica."""
        rows = {}
        reader = self._other()
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for name in self.tables():
            with reader.cursor() as cursor, cursor.copy(f'COPY "{name}" TO STDOUT (FORMAT binary)') as copy:
                rows[name] = b"".join(map(bytes, copy))
        sequences = {
            name: int(value or 0)
            for name, value in reader.execute(
                "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'public'"
            )
        }
        self._end(reader, commit=True)
        self.snapshot = Snapshot(rows, sequences, set(self.ledger.sent))

    def fail_over(self, *, numbers_again: bool) -> None:
        """Let the replica take over: every connection breaks,
        and what was committed since the snapshot is gone.

        :param numbers_again: whether sequences go back too, as they do when more numbers were given than a
            server logs at once.
        """
        assert self.snapshot is not None
        self._cut_others()
        snapshot = self.snapshot
        tables = self.tables()
        with self.admin.transaction(), self.admin.cursor() as cursor:
            for name in tables:
                cursor.execute(f'DELETE FROM "{name}"')
                if name in snapshot.rows:
                    with cursor.copy(f'COPY "{name}" FROM STDIN (FORMAT binary)') as copy:
                        copy.write(snapshot.rows[name])
            for name, value in snapshot.sequences.items():
                to = value if numbers_again else max(value, self._last_number(name))
                cursor.execute("SELECT setval(%s, greatest(%s, 1), %s)", [f'public."{name}"', to, to > 0])
        self.ledger.sent &= snapshot.sent
        self.ledger.retried &= snapshot.sent  # what has arrived elsewhere is forgotten here, with its answer
        for source in self.sources:
            for seq, n in self.row_versions(source):
                self.ledger.numbers[source, seq] = n

    def _last_number(self, sequence: str) -> int:
        (last,) = self._run(
            self.admin, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {}", sequence
        )[0]
        return int(last)

    def heal(self) -> None:
        """Let everybody else come to an end, and let the server notice who is gone."""
        while self.takers:
            self.end_take(commit=True)
        while self.late:
            self.end_late(commit=True)
        self.end_dump()
        self.network.notice()
        self.network.forget_faults()

    def _cut_others(self) -> None:
        for each in (*self.takers, *self.late):
            self._end(each.connection, commit=False)
        self.takers, self.late = [], []
        self.end_dump()
        self.network.notice()

    # -- looking -----------------------------------------------------------------------------------

    def in_table(self, name: str) -> Counter[int]:
        """How often each message stands in a table; in all error queues if it is the first of them."""
        text = "SELECT convert_from(body, 'UTF8')::int FROM {}"
        names = self.errors if name == ERROR else [name]
        return Counter(n for each in names for (n,) in self._run(self.admin, text, each))

    def acknowledged(self) -> Counter[int]:
        """How often ServiceControl was told of each message."""
        text = f"SELECT (headers::json->>'{RETRY_ID}')::int FROM {{}}"
        return Counter(n for (n,) in self._run(self.admin, text, ACKNOWLEDGED))

    def failed_by_us(self) -> set[int]:
        """The messages in the error queue that failed by an error of the package."""
        text = f"""SELECT convert_from(body, 'UTF8')::int FROM {{}}
            WHERE headers::json->>'{EXCEPTION_INFO}ExceptionType' LIKE 'sqlqueue_spark.%'"""
        return {n for each in self.errors for (n,) in self._run(self.admin, text, each)}

    def failed_for_others(self) -> set[int]:
        """The messages in the error queue that did not fail for the first source."""
        text = f"SELECT convert_from(body, 'UTF8')::int, headers::json->>'{FAILED_QUEUE}' FROM {{}}"
        rows = [row for each in self.errors for row in self._run(self.admin, text, each)]
        return {n for n, queue in rows if queue != f'"public"."{SOURCES[0]}"'}

    def row_versions(self, source: str) -> list[tuple[int, int]]:
        """The number of each row of a queue, and its message."""
        return [
            (seq, n)
            for seq, n in self._run(self.admin, "SELECT seq, convert_from(body, 'UTF8')::int FROM {}", source)
        ]

    def free(self, source: str) -> int:
        """How many rows a stream could claim, because no session holds them."""
        statement = "SELECT count(*) FROM (SELECT seq FROM {} FOR UPDATE SKIP LOCKED) AS free"
        return int(self._run(self.admin, statement, source)[0][0])

    def sender_of(self, source: str, seq: int) -> int | None:
        return self.ledger.numbers.get((source, seq))

    # -- connections of others ---------------------------------------------------------------------

    def _run(
        self, connection: psycopg.Connection, statement: str, table: str, *values: object
    ) -> list[tuple[Any, ...]]:
        return connection.execute(sql.SQL(statement).format(sql.Identifier(table)), values or None).fetchall()

    def _other(self) -> psycopg.Connection:
        return self._others.pop() if self._others else psycopg.connect(self.url, prepare_threshold=0)

    def _end(self, connection: psycopg.Connection, *, commit: bool) -> None:
        if commit:
            connection.commit()
        else:
            connection.rollback()
        self._others.append(connection)


@contextmanager
def opened_world(url: str) -> Iterator[World]:
    world = World(url)
    try:
        with world.network.installed():
            yield world
    finally:
        world.close()


def listed(numbers: Iterable[int]) -> str:
    """Numbers as people write them: ``1-3, 7``."""
    ordered = sorted(set(numbers))
    parts = []
    for _, group in itertools.groupby(enumerate(ordered), lambda pair: pair[1] - pair[0]):
        run = [n for _, n in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(parts) or "none"
