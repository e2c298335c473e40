"""The network between the code under test and the server: it lends connections,
and cuts them when a scenario says so.

To connect takes a server milliseconds, and 45 of them for a reader of Arrow. So the network keeps real
connections and lends them. A connection that is cut answers as if its socket were broken. The server notices
that at once and rolls back, or it notices later: until then the locks stay, and no living process holds them.
"""

import contextlib
import re
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from sqlqueue_spark.engines.postgresql import connection
from sqlqueue_spark.engines.postgresql.arrow_connection import ArrowConnection

#: The number by which a session is known behind a pooler; it is another one each time.
_MARK = re.compile(rb"\d{12,}")
_LOST = "server closed the connection unexpectedly"
_REFUSED = "connection failed: Connection refused"


class Network:
    """Lends connections to the processes of one scenario after another."""

    def __init__(self, url: str) -> None:
        self.url = url
        #: The process that connects from now on.
        self.process = ""
        self.wires: list[Wire] = []
        #: Connections that are cut, of which the server has not noticed it and still holds locks.
        self.unnoticed: list[psycopg.Connection] = []
        #: The settings of its session that each connection was last given, by the connection's identity.
        self.sessions: dict[int, bytes] = {}
        #: The databases that are down: all connections to them are broken, and new ones are refused.
        self.shut: set[str] = set()
        #: How many commits were heard whose answer was lost.
        self.unanswered = 0
        self._free: defaultdict[str, list[psycopg.Connection]] = defaultdict(list)
        self._readers: list[Any] = []
        #: The readers that are lent, and to whom, because a worker that dies gives nothing back.
        self._lent: list[tuple[weakref.ref[ReaderWire], Any]] = []
        self._cut_at_commit: tuple[str, bool, str | None] | None = None
        #: Is called before a connection is cut at a commit.
        self.before_cut: Callable[[], object] = lambda: None
        #: Is called when a worker's commit was heard, and its answer is lost.
        self.worker_not_answered: Callable[[], object] = lambda: None

    def connect(self, conninfo: str, **_: object) -> "Wire":
        database = _database(conninfo)
        if database in self.shut:
            raise psycopg.OperationalError(_REFUSED)
        free = self._free[database]
        raw = free.pop() if free else self._connected(conninfo)
        wire = Wire(self, raw, self.process)
        self.wires.append(wire)
        return wire

    @staticmethod
    def _connected(conninfo: str) -> psycopg.Connection:
        return psycopg.connect(conninfo, prepare_threshold=0, cursor_factory=_Cursor)

    def connect_reader(self, conninfo: str) -> "ReaderWire":
        self._close_readers([raw for wire, raw in self._lent if wire() is None])
        raw = self._readers.pop() if self._readers else ArrowConnection(conninfo)
        wire = ReaderWire(self, raw)
        self._lent.append((weakref.ref(wire), raw))
        return wire

    def cut(self, process: str, *, noticed: bool = True) -> int:
        """Cut the connections of a process; returns how many of them had a transaction open."""
        theirs = [wire for wire in self.wires if wire.process == process]
        busy = sum(wire.busy for wire in theirs)
        for wire in theirs:
            wire.cut(noticed=noticed)
        return busy

    def shut_off(self, database: str, *, noticed: bool = True) -> None:
        """Let no process reach a database any more; ``noticed`` says whether its server notices
        at once which sessions are gone.
        """
        self.shut.add(database)
        self.cut_off(database, noticed=noticed)

    def cut_off(self, database: str, *, noticed: bool = True) -> None:
        """Cut all connections to a database."""
        for wire in [each for each in self.wires if each.database == database]:
            wire.cut(noticed=noticed)

    def forget(self, database: str) -> None:
        """Keep no session of a database, of which none is lent or unnoticed: the next ones begin anew."""
        for raw in self._free.pop(database, []):
            self.sessions.pop(id(raw), None)
            raw.close()

    def notice(self) -> int:
        """Let the server notice which connections were cut; returns how many those were."""
        noticed, self.unnoticed = self.unnoticed, []
        for raw in noticed:
            self.keep(raw)
        return len(noticed)

    def cut_at_next_commit(self, process: str, *, delivered: bool, down: str | None = None) -> None:
        """Cut the connection on which this process next commits something,
        before or after the server hears it.

        :param down: the database in which the commit is; from then on no process reaches it.
            None for a commit anywhere.
        """
        self._cut_at_commit = (process, delivered, down)

    def commit_of(self, process: str, database: str | None = None) -> bool | None:
        """What is to become of the commit that the process makes now.

        True: the server hears it, and then the connection breaks. False: the connection breaks before. None:
        it just works.
        """
        if self._cut_at_commit is None or self._cut_at_commit[0] != process:
            return None
        _, delivered, down = self._cut_at_commit
        if down is not None and down != database:
            return None
        self._cut_at_commit = None
        if down is not None:
            self.shut.add(down)
        return delivered

    def forget_faults(self) -> None:
        self._cut_at_commit = None

    def of(self, process: str) -> "list[Wire]":
        return [wire for wire in self.wires if wire.process == process]

    def keep(self, raw: psycopg.Connection) -> None:
        """Take a connection back; whatever it was doing is rolled back."""
        if raw.info.transaction_status != TransactionStatus.IDLE:
            raw.rollback()
        if holds(raw):
            raw.execute("SELECT pg_advisory_unlock_all()")
            raw.commit()
            vars(raw).pop("holds")
        self._free[raw.info.dbname].append(raw)

    def keep_reader(self, raw: Any) -> None:
        self._lent = [(wire, each) for wire, each in self._lent if each is not raw]
        self._readers.append(raw)

    def _close_readers(self, these: list[Any]) -> None:
        for raw in these:
            raw.close()
        self._lent = [(wire, each) for wire, each in self._lent if all(each is not raw for raw in these)]

    def close(self) -> None:
        self.notice()
        self._close_readers([raw for _, raw in self._lent])
        for each in (*(raw for free in self._free.values() for raw in free), *self._readers):
            each.close()
        self._free.clear()
        self._readers.clear()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Within the block the package connects by way of this network."""
        with (
            mock.patch.object(connection, "psycopg", _Module(psycopg, self.connect)),
            mock.patch.object(connection, "ArrowConnection", self.connect_reader),
        ):
            yield


class Wire:
    """A lent connection that behaves as psycopg's."""

    def __init__(self, network: Network, raw: psycopg.Connection, process: str) -> None:
        self.process = process
        self.database = raw.info.dbname
        self._network = network
        self._raw: psycopg.Connection | None = raw

    @property
    def busy(self) -> bool:
        """Whether a transaction is open."""
        return self._raw is not None and self._raw.info.transaction_status != TransactionStatus.IDLE

    @property
    def pid(self) -> int:
        return self._alive().info.backend_pid

    def cursor(self, **named: Any) -> Any:
        raw = self._alive()
        return raw.cursor(**named)

    def execute(self, statement: Any, **named: Any) -> Any:
        """Make the settings of the session, unless the connection was lent before and has them already."""
        raw = self._alive()
        said = _MARK.sub(b"", statement)
        if self._network.sessions.get(id(raw)) == said:
            return SimpleNamespace(fetchone=lambda: (raw.info.backend_pid,))
        self._network.sessions[id(raw)] = said
        return raw.execute(statement, **named)

    def commit(self) -> None:
        raw = self._alive()
        heard = self._network.commit_of(self.process, self.database) if self.busy else None
        if heard is None:
            raw.commit()
            return
        self._network.before_cut()
        if heard:
            raw.commit()
            self._network.unanswered += 1
        self.cut()
        raise psycopg.OperationalError(_LOST)

    def rollback(self) -> None:
        self._alive().rollback()

    def close(self) -> None:
        self.cut()

    def cut(self, *, noticed: bool = True) -> None:
        if self._raw is None:
            return
        raw, self._raw = self._raw, None
        self._network.wires.remove(self)
        if noticed or (raw.info.transaction_status == TransactionStatus.IDLE and not holds(raw)):
            self._network.keep(raw)
        else:
            self._network.unnoticed.append(raw)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._alive(), name)

    def _alive(self) -> psycopg.Connection:
        if self._raw is None:
            raise psycopg.OperationalError(_LOST)
        return self._raw


@cache
def _database(conninfo: str) -> str:
    return str(conninfo_to_dict(conninfo)["dbname"])


class _Cursor(psycopg.Cursor[Any]):
    """Notices when a lock of the session is taken, because that lock outlives the transaction."""

    def execute(self, query: Any, *given: Any, **named: Any) -> Any:
        if "pg_advisory_lock(" in str(query):
            vars(self.connection)["holds"] = True
        return super().execute(query, *given, **named)


def holds(raw: psycopg.Connection) -> bool:
    """Whether the session may hold a lock that outlives its transaction."""
    return "holds" in vars(raw)


class ReaderWire:
    """A worker's lent connection that reads Arrow."""

    def __init__(self, network: Network, raw: Any) -> None:
        self._network = network
        self._raw = raw
        self._autocommit = True

    def read(self, text: str, batch_bytes: int) -> Any:
        return self._raw.read(text, batch_bytes)

    def close(self) -> None:
        if self._raw is None:
            return
        raw, self._raw = self._raw, None
        if not self._autocommit:
            raw.rollback()
            raw.set_autocommit(True)
        self._network.keep_reader(raw)

    def set_autocommit(self, on: bool) -> None:
        # A worker outlives drivers, and works for the one that runs now.
        heard = self._network.commit_of(self._network.process) if on else None
        if heard is False:
            self._raw.rollback()
        self._raw.set_autocommit(on)
        self._autocommit = on
        if heard:
            self._network.worker_not_answered()
        if heard is not None:
            raise OSError(_LOST)


class _Module:
    """A driver's module with another function ``connect``."""

    def __init__(self, module: Any, connect: Any) -> None:
        self._module = module
        self.connect = connect

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
