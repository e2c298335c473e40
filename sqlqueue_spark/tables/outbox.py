"""One endpoint's outbox table: it remembers the message ids that were sent or processed.

An id and the work that is done because of it are committed together. So the work is done exactly once,
however often it is tried. The tables are those of the .NET persistence, with which one may be shared.
"""

import contextlib
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple, Self, cast

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.engines.engine_of_url import OUTBOX_DATABASES
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.engines.users_connection import UsersConnection
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.message import since
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.plain_text import for_shell, shell_word
from sqlqueue_spark.tables.base_table import BaseTable
from sqlqueue_spark.tables.database_facts import to_create
from sqlqueue_spark.tables.outbox_keys import LONGEST_ID, check_id, may_stand_as_it_is, process_key
from sqlqueue_spark.tables.rights import SENDER, remedy_command
from sqlqueue_spark.tables.table_code import check_went_in
from sqlqueue_spark.version import __version__

#: In the rows that we write, the column PersistenceVersion begins so.
_OURS = "sqlqueue "
#: The versions of this package that wrote no marks of endpoints.
_WITHOUT_MARKS = ("0.1.0",)
#: How many rows the statement ``outbox_oldest`` looks at.
_OLDEST = 1_000
#: How long a rehearsal waits for the locks of others.
_TRIAL_MS = 1_000


class OutboxReport(NamedTuple):
    """What an outbox table holds, by the database's clock.

    Only .NET endpoints write rows that are not dispatched. One that stays is an orphan: its endpoint
    stored the messages and died before it had sent them.
    """

    rows: int
    undispatched: int
    oldest_dispatched_at: datetime | None
    oldest_age: timedelta | None


class OutboxTable(BaseTable):
    """An outbox table on an open connection, which has to do no more than a user's.

    An id that is no text of 1 to 200 characters raises a :class:`ConfigurationError`.
    """

    called, called_after, kind = "the outbox table", "endpoint", "outbox"
    doing = "looking at"
    creating = ("outbox_create", "outbox_index_dispatched_at", "outbox_index_dispatched")

    def __init__(
        self, connection: Connection | UsersConnection, endpoint: str, schema: str | None = None
    ) -> None:
        """:raises ConfigurationError: the engine has no table of this name."""
        database: Database = connection.dialect
        super().__init__(cast("Connection", connection), database.outbox_table(endpoint, schema))
        self.endpoint = endpoint
        as_named = self.table.table.startswith(endpoint)
        #: Tells endpoints of one table apart; empty for the one whose name is as in the table's.
        self._mark = "" if as_named else sha256(endpoint.encode()).hexdigest()[:6]
        self.name = database.table(self.table)

    @classmethod
    def names(cls, database: Database, table: Table) -> Mapping[str, str]:
        return database.outbox_names(table)

    @classmethod
    def of_sink(cls, connection: Connection, options: SinkOptions) -> Self:
        """The outbox of a sink with these options in the connection's database. Errors as above."""
        return cls(connection, options.sender or "", options.default_schema)

    def known_as(self) -> str:
        return self.name

    def exists(self) -> bool:
        return self.keeps_ids_once() is not None

    def keeps_ids_once(self) -> bool | None:
        """Whether a unique index has the message id alone as its key; None if there is no table."""
        wanted = {"schema": self.table.schema or None, "name": self.table.table}
        found = self.execute("outbox_exists", "looking for", **wanted)
        return bool(found[0][1]) if found else None

    def check(self) -> None:
        """Look whether it is in the connection's database, and keeps each id once.

        :raises QueueError: it is not, or does not; the text says what to do.
        """
        with self.connection.transaction():
            if (once := self.keeps_ids_once()) is None:
                there = to_create(self.connection, self._creating())
                raise QueueError(f"There is no outbox table {self.name} {there}, or set outbox to none.")
            if not once:
                raise QueueError(
                    f"The outbox table {self.name} has no unique index whose only key is MessageId, so one "
                    "id could be added twice and its message sent twice; make MessageId its primary key (a "
                    "table that is partitioned by DispatchedAt cannot have that key), or give the sink an "
                    "endpoint with a table of its own."
                )

    def rehearse(self) -> str:
        """As :meth:`check`, and add an id, which is rolled back; returns its name.

        :raises RowsHeld: others have locked it for a second.
        """
        self.check()
        with self.connection.rehearsal(_TRIAL_MS):
            self.add_new([str(uuid.uuid4())])
        return self.name

    def seen(self, ids: Iterable[str]) -> set[str]:
        return {each for chunk in self._chunks(ids) for each in self._answer("outbox_seen", chunk)}

    def seen_of(self, ids: Iterable[str], version: str) -> set[str]:
        """Which of these ids this version of the package has remembered."""
        chunks = self._chunks(filter(self.connection.holds, ids))
        return {each for chunk in chunks for each in self._answer("outbox_seen_of", chunk, version)}

    def may_hold(self, version: str) -> bool:
        """Whether rows of an earlier version of this package may be there, by one short look.

        It reads only the oldest rows. Versions follow each other in time. So rows of that version may stand
        behind these only where all of these are a .NET endpoint's, or of a version before.
        """
        written: dict[str | None, int] = dict(self.execute("outbox_oldest"))
        ours = {name for name in written if name is not None and name.startswith(_OURS)}
        behind = sum(written.values()) >= _OLDEST and all(each < version for each in ours)
        return version in ours or behind

    def is_shared(self) -> bool:
        """Whether another endpoint of ours wrote some of the oldest rows; one short look.

        ``Shop.Spark`` and ``Shop_Spark`` mean one table.
        """
        writers = [writer for writer, _ in self.execute("outbox_oldest") if writer is not None]
        ours = (writer.removeprefix(_OURS).partition(" ") for writer in writers if writer.startswith(_OURS))
        return any(mark != self._mark for version, _, mark in ours if version not in _WITHOUT_MARKS)

    def has_ids(self) -> bool:
        """Whether any id is remembered, of work that is done; one short look."""
        return bool(self.execute("outbox_oldest"))

    def has_outcomes(self) -> bool:
        """Whether the outcome of any received row is remembered, or a failure; one short look."""
        return bool(self.execute("outbox_has_outcomes"))

    def add(self, ids: Iterable[str]) -> None:
        """Remember these ids.

        :raises Duplicate: one of them is there already, or another transaction, for which this one has
            waited, has added it.
        """
        for chunk in self._chunks(ids):
            took = self.modify("outbox_add", "adding ids to", ids=self._bound(chunk), version=self._writer())
            check_went_in(took, len(chunk), self.name)

    def add_new(self, ids: Iterable[str]) -> set[str]:
        """Remember those of these ids that are not there, and return them.

        It waits for an id that another transaction has added and not committed, up to the lock timeout.
        """
        return {each for chunk in self._chunks(ids) for each in self._add_new(chunk)}

    def clean(self, keep: timedelta) -> int:
        """Forget at most :attr:`Database.written` ids that are older than ``keep`` by the database's clock.

        It steps over rows that others hold. Rows that are not dispatched stay, whatever their age.

        :returns: how many ids it has forgotten.
        """
        return self.modify("outbox_clean", "cleaning", seconds=-(-keep // timedelta(seconds=1)))

    def report(self) -> OutboxReport:
        """What the table holds; waits for no lock."""
        rows, undispatched, oldest, now = self.execute("outbox_report")[0]
        oldest = oldest and oldest.replace(tzinfo=UTC)
        return OutboxReport(rows, undispatched, oldest, since(oldest, now.replace(tzinfo=UTC)))

    def _add_new(self, chunk: Sequence[str]) -> set[str]:
        if self.connection.dialect.returns_inserted:
            new = self._answer("outbox_add_new", chunk, self._writer())
            if self.connection.dialect.drops_rows and (old := [each for each in chunk if each not in new]):
                check_went_in(len(new), len(chunk) - len(self._answer("outbox_seen", old)), self.name)
            return new
        mark = f"{_OURS}{secrets.token_hex(7)}"  # the 23 characters of PersistenceVersion
        self.modify("outbox_add_new", "adding ids to", ids=self._bound(chunk), version=mark)
        return self._answer("outbox_seen_of", chunk, mark)

    def _writer(self) -> str:
        """Who writes, for the column PersistenceVersion, which takes 23 characters: version and mark."""
        mark = f" {self._mark}" if self._mark else ""
        return f"{_OURS}{__version__}"[: 23 - len(mark)] + mark

    def _chunks(self, ids: Iterable[Any]) -> Iterator[Sequence[str]]:
        """The ids in portions for one statement, and in the order in which every sender adds them.

        In other orders two senders could wait for each other.

        :raises ConfigurationError: one of them does not fit into the column.
        """
        once, most = set(ids), self.connection.dialect.written
        # Most are of this kind, and then no id need be looked at by itself.
        if set(map(type, once)) != {str} or "" in once or 2 * max(map(len, once)) > LONGEST_ID:
            for each in once:
                check_id(each)
        everything = sorted(once)
        return (everything[start : start + most] for start in range(0, len(everything), most))

    def _bound(self, chunk: Sequence[str]) -> object:
        return self.connection.dialect.bind_texts(chunk)

    def _answer(self, statement: str, asked: Sequence[str], version: str = "") -> set[str]:
        """The ids that a statement returns, all of them asked for. A mangled id would be lost."""
        doing = "adding ids to" if statement == "outbox_add_new" else "looking up ids in"
        found = {each for (each,) in self.execute(statement, doing, ids=self._bound(asked), version=version)}
        if strange := found.difference(asked):
            raise ConfigurationError(
                f"The outbox table {self.name} was asked for some message ids and answered with "
                f"{min(strange)!r}, which was not among them: the connection's character set does not carry "
                "them; choose one that does, like utf8mb4."
            )
        return found

    def needed(self, *, writing: bool) -> str:  # noqa: ARG002 -- who uses an outbox does both
        return (
            "an outbox needs SELECT, INSERT and DELETE (and UPDATE on PostgreSQL, to lock rows) on its "
            f"table; {remedy_command(self.connection.dialect, SENDER, '--endpoint', self.endpoint)} writes "
            "the statements."
        )

    def _creating(self) -> str:
        usual = self.connection.dialect.outbox_table(self.endpoint)
        schema = "" if self.table == usual else f"--schema {shell_word(self.table.schema)} "
        return f"outbox create {schema}{for_shell(self.endpoint)}"

    @contextlib.contextmanager
    def _rights_explained(self, *, writing: bool) -> Iterator[None]:
        """Name the remedy for a missing outbox table, too, which is not that for a missing queue."""
        with super()._rights_explained(writing=writing):
            try:
                yield
            except QueueError as error:
                lines = str(error.__cause__ or error).strip().splitlines() or ["no reason given"]
                raise QueueError(
                    f"The outbox table {self.name} cannot be used ({lines[0].rstrip('.')}); if it is not "
                    f"there, create it with: sqlqueue {self._creating()}."
                ) from error


@dataclass(frozen=True)
class Outbox:
    """Makes a ``foreachBatch`` function write exactly once, however often Spark repeats a batch.

    The function asks which ids are new, writes the rows of these alone, and commits ids and rows in one
    transaction of its own connection. If batches fit into the driver's memory, it does so there, as in
    docs/outbox.md. For batches of any size it does so on the workers, a transaction for each partition::

        def write_partition(rows):
            rows = {row.MessageId: row for row in rows}
            connection = pyodbc.connect(url, autocommit=False)
            try:
                new = Outbox("Sales").process(connection, rows)
                cursor = connection.cursor()
                for id in new:
                    cursor.execute("UPDATE stock SET pieces = pieces - ? WHERE …", rows[id].pieces, …)
                connection.commit()
            finally:
                connection.close()  # what was not committed is rolled back

        def write(df, batch_id):
            df.foreachPartition(write_partition)

    :param endpoint: names the table. Ids that another pipeline has processed under the same endpoint count as
        processed, so each pipeline needs its own.
    :param engine: ``postgresql``, ``sqlserver``, ``mysql`` or ``oracle``, where the driver does not tell.
    :param schema: of the table; by default ``public`` on PostgreSQL, ``dbo`` on SQL Server, elsewhere the
        connection's.
    """

    endpoint: str
    engine: str | None = None
    schema: str | None = None

    def __post_init__(self) -> None:
        if self.engine is not None and self.engine not in OUTBOX_DATABASES:
            raise ConfigurationError(
                f"There is no engine {self.engine!r}; the engines are {', '.join(OUTBOX_DATABASES)}."
            )

    def process(self, connection: Any, ids: Iterable[str]) -> list[str]:
        """Those of the ids that were not processed before, in the given order, each once.

        They are remembered in the connection's open transaction. The caller commits it together with the work
        for them; after a rollback they count as never processed. The call waits for an id that another
        transaction is processing just now. The connection decides how durable the commit is: with
        ``synchronous_commit = off``, or in a SQL Server database with delayed durability, a crash of the
        server can lose the ids and the work together, after Spark has logged the batch. Ids are compared
        exactly, whatever the table's collation is: ``Order`` and ``order`` are two.

        :param connection: of any driver of PEP 249 (psycopg, pyodbc, PyMySQL, mysqlclient, mariadb,
            mysql.connector, oracledb), not in autocommit mode.
        :raises ConfigurationError: an id is no text, or an empty one, the connection is in autocommit
            mode, or its engine is not known.
        """
        keys = {process_key(each): each for each in ids}
        outbox = OutboxTable(UsersConnection(connection, self.engine), self.endpoint, self.schema)
        known = outbox.seen(filter(may_stand_as_it_is, keys.values()))
        new = outbox.add_new(key for key, each in keys.items() if each not in known)
        return [each for key, each in keys.items() if key in new]
