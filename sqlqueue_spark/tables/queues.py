"""One queue table: finds it by its address, and runs the statements of its receivers.

Every method runs inside the connection's open transaction and never commits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import NamedTuple

from sqlqueue_spark.engines.connection import Connection, Row, rows_awaited
from sqlqueue_spark.engines.dialect import ClaimedColumns, Dialect
from sqlqueue_spark.engines.driver_errors import Doing
from sqlqueue_spark.engines.statements import Parameters, Statement
from sqlqueue_spark.errors import ConfigurationError, NoRight, QueueError
from sqlqueue_spark.messages.addresses import Naming, Table
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.row_set import HIGHEST, RowSet
from sqlqueue_spark.tables import table_code

#: Columns that some generations of queue tables lack; a missing one is read as NULL.
OPTIONAL_COLUMNS = ("CorrelationId", "ReplyToAddress", "Recoverable")
#: The RowVersion of a row, to sort the rows of a statement that gives them in any order.
_ROW_VERSION = itemgetter(0)
_BYTES = {"bytea", "varbinary", "binary", "image"}
_TEXTS = {"text", "character varying", "character", "varchar", "nvarchar", "char", "nchar", "ntext"}
_DOCUMENTS = {"json", "jsonb", "xml"}
#: What a message is made of, and types with which each is never what it should be: the server converts them.
CONTENT = {"headers": _BYTES | _DOCUMENTS, "body": _TEXTS | _DOCUMENTS}
#: What to do with a table that is misshapen.
_ANEW = "create a table of another name with sqlqueue create and move the rows, or correct the queue name"
#: What a table is that is no queue's.
_KINDS = {"table": "a table from which others inherit"}
#: How many rows more than wanted a look for free rows goes over, at least: others hold some.
_HELD = 100


class Waiting(NamedTuple):
    """What waits behind a row: at most how many rows, the oldest row's headers, the database's clock."""

    rows: int
    headers: str | None
    now: datetime


class Oldest(NamedTuple):
    """The oldest rows of a queue, as one look has seen them."""

    #: Free rows above ``after`` and up to ``left_to``.
    free_before: int
    #: Rows that a neighbour holds, as far as the engine tells.
    held: int
    #: No row that is free or a neighbour's stands at or below this one.
    floor: int
    #: The last row of the look.
    last: int
    #: Free rows up to ``last``.
    free: int
    #: Whether there were as many free rows as wanted.
    enough: bool
    #: How many other streams of ours have the queue open, as far as the engine tells.
    streams: int
    #: How many sessions of neighbours look for a row now or hold one, as far as the engine tells. It is 0
    #: where a stream's workers take rows without a claim.
    looking: int


class InTransit(NamedTuple):
    """A row that is to go elsewhere, as its table has it; ``expires`` is in UTC, without a time zone."""

    row_version: int
    id: str
    correlation_id: str | None
    reply_to: str | None
    expires: datetime | None
    headers: str | None
    body: bytes | None


class Holder(NamedTuple):
    """A session that holds locks on rows."""

    session: int
    login: str
    host: str | None
    program: str | None

    def __str__(self) -> str:
        program = self.program or "unnamed program"
        return f"session {self.session} ({program}, {self.login}@{self.host or 'unknown'})"


class Column(NamedTuple):
    name: str
    type: str
    nullable: bool
    computed: bool


@dataclass(frozen=True, kw_only=True)
class QueueTable:
    """Which table an address means: its name, and an identity that stays while rows come and go."""

    table: Table
    #: Canonical, with the names as the database spells them: ``orders@[public]@[shop]``.
    name: str
    object_id: int
    #: Changes when the table is dropped and created again, not when it is truncated or rewritten.
    identity: str
    #: The database the table lies in.
    database: str
    #: In their order; empty where they were not asked for.
    columns: tuple[Column, ...] = ()
    #: Whether that database is read-only here: a readable copy, or one on a standby server.
    read_only: bool = False
    #: Whether policies decide which rows this login may insert. Then :attr:`Dialect.bind_messages` has no way
    #: in.
    row_security: bool = False
    #: Whether plain reads see row versions: also those of rows that an open transaction has deleted. A claim
    #: then deletes its rows at once, as the one-row receivers do, and settling it is only the commit.
    row_versions: bool = False
    #: Whether a claim keeps a lock on the index key of a row that it has stepped over.
    keeps_skipped: bool = False
    #: The name of that database as its server spells it; None where it is the connection's own database.
    foreign: str | None = None

    @property
    def address(self) -> str:
        """Which table of its server this is, in one spelling, independent of the connection's database."""
        return str(replace(self.table, catalog=self.foreign))

    @property
    def spelled(self) -> Mapping[str, str]:
        """The columns as the table spells them, by their names in lower case."""
        return {column.name.lower(): column.name for column in self.columns}

    @property
    def due(self) -> str | None:
        """The column that tells when a message is due; None for the table of a queue."""
        return self.spelled.get("due")

    @property
    def identified(self) -> Parameters:
        """The parameters by which statements find the table in the catalogue."""
        return {"database": self.database, "object_id": self.object_id}


def find(connection: Connection, table: Table) -> QueueTable | None:
    """Look a table up; None when it is not there.

    :raises ConfigurationError: the address names a database that cannot be reached from this connection.
    """
    dialect = connection.dialect
    doing = f"looking for {table}"
    database, read_only = connection.execute(dialect.statement("database"), doing=doing)[0]
    if table.catalog is not None and table.catalog != database and not dialect.reaches_other_databases:
        raise ConfigurationError(
            f"The queue {table} lies in database {table.catalog!r} but the url leads to {database!r}; "
            f"{dialect.title} reaches one database a connection, so put the queue's database into the url."
        )
    catalog = table.catalog or database
    if not all(map(connection.holds, (catalog, table.schema, table.table))):
        return None
    names = {"schema": table.schema, "name": table.table}
    in_catalog = {"catalog": dialect.quote(catalog)}
    try:
        found = connection.execute(dialect.render("identity", **in_catalog), names, doing=doing)
    except QueueError as error:
        if table.catalog is None:
            raise
        raise ConfigurationError(
            f"The queue {table} lies in database {table.catalog!r}, which is not there ({error}); correct "
            "the address."
        ) from error
    if not found:
        return None
    schema, name, object_id, _, row_security = found[0]
    columns = connection.execute(dialect.render("columns", **in_catalog), names, doing=doing)
    spelled = database
    if catalog != database:
        spelled = connection.execute(dialect.statement("catalog"), {"database": catalog})[0][0] or catalog
    return QueueTable(
        table=Table(table=name, schema=schema, catalog=table.catalog),
        name=str(Table(table=name, schema=schema, catalog=catalog)),
        object_id=object_id,
        identity=_identity(found[0]),
        columns=tuple(Column(*column) for column in columns),
        database=catalog,
        read_only=bool(read_only),
        row_security=bool(row_security),
        foreign=None if spelled == database else spelled,
    )


def _identity(found: tuple[object, ...]) -> str:
    """The object id and, where the engine knows it, the creation date."""
    _, _, object_id, created, _ = found
    return f"{object_id}/{created}" if created else str(object_id)


class Misfit(NamedTuple):
    """A column that a table lacks or has of another type: a sentence, and whether the table is of no use."""

    message: str
    unusable: bool


def misfits(table: QueueTable, wanted: Mapping[str, Sequence[str]]) -> Iterator[Misfit]:
    """Which columns a table lacks or has of another type.

    It is of no use without a column, with headers that are no text, or with a body that is no bytes.

    :param wanted: the columns that it must have, each with the types that it may have.
    """
    types = {column.name.lower(): column.type for column in table.columns}
    for name, allowed in wanted.items():
        found, told = types.get(name.lower()), " or ".join(allowed)
        kind = (found or "").partition("(")[0]
        if found is None:
            yield Misfit(f"{table.name} has no column {name} ({told}); {_ANEW}.", unusable=True)
        elif found not in allowed and kind not in allowed:
            unusable = kind in CONTENT.get(name.lower(), ())
            message = f"The column {name} of {table.name} is {found}, not {told}; {_ANEW}."
            yield Misfit(message, unusable=unusable)


def check_shape(table: QueueTable, wanted: Mapping[str, Sequence[str]]) -> None:
    """:raises QueueError: the table is of no use, also while it is empty: the first such :func:`misfits`."""
    for each in misfits(table, wanted):
        if each.unusable:
            raise QueueError(each.message)


def find_queue(connection: Connection, table: Table) -> QueueTable | None:
    """As :func:`find`, for a queue.

    :raises QueueError: the table is of no use as one.
    """
    found = find(connection, table)
    if found is not None:
        if found.due:
            raise QueueError(
                f"{found.name} is a table of delayed messages; name its queue, or look at it with: sqlqueue "
                "delayed length QUEUE."
            )
        check_shape(found, connection.dialect.queue_columns)
    return found


def get(connection: Connection, address: str, naming: Naming, *, shaped: bool = True) -> Queue:
    """The queue at an address; ``shaped`` as for :func:`at`.

    :raises QueueError: there is no such table.
    """
    table = naming.table(address)
    queue = at(connection, table, shaped=shaped)
    if queue is None:
        raise missing(connection, table, address, "in this database", "the queue name")
    return queue


def at(connection: Connection, table: Table, *, guarded: bool = False, shaped: bool = True) -> Queue | None:
    """The queue of a table; None where there is none. Errors as :func:`find_queue`.

    :param guarded: as for a queue.
    :param shaped: whether it must have the columns of one; else its columns are not checked.
    """
    found = (find_queue if shaped else find)(connection, table)
    if found is None:
        return None
    statement = connection.dialect.render("storage", catalog=connection.dialect.quote(found.database))
    rows = connection.execute(statement, found.identified, doing=f"asking about {found.name}")
    row_versions, heap = map(bool, rows[0])
    table_ = replace(found, row_versions=row_versions, keeps_skipped=heap)
    return Queue(connection, table_, guarded=guarded)


def left_alone(connection: Connection, table: Table, *, looking: bool = False) -> str | None:
    """Why a table that no option names is left alone: what of a stranger would run as this login.

    None where nothing would, until the transaction ends. On PostgreSQL a lock keeps new code out; a login
    that may only look cannot keep out indexes.

    :param looking: rows are only looked at; else they are deleted too.
    """
    if connection.dialect.statement("code_lock"):
        for look_alone in (False, True):
            with contextlib.suppress(NoRight), connection.attempt(hurried=True):
                table_code.keep_out(connection, table, looking=look_alone)
                break
    return _of_strangers(connection, table, table_code.LOOK if looking else table_code.DELETE)


def _of_strangers(connection: Connection, table: Table, event: int) -> str | None:
    found = table_code.found(connection, table, event)
    return found.why and f"it belongs to {found.owner!r}, and {found.why}"


def missing(connection: Connection, table: Table, address: str, where: str, what: str) -> QueueError:
    """The error for a missing queue table. It tells what has the name instead, or nearly the name.

    :param address: as the user gave it.
    :param where: where the table was looked for.
    :param what: what the user should correct.
    """
    catalog = table.catalog or connection.execute(connection.dialect.statement("database"))[0][0]
    rows: list[Row] = []
    if connection.holds(table.table) and connection.holds(catalog):
        statement = connection.dialect.render("namesakes", catalog=connection.dialect.quote(catalog))
        rows = connection.execute(statement, {"name": table.table}, doing=f"looking for {table}")
    kinds = {Table(table=name, schema=schema): kind for schema, name, kind in rows}
    here = Table(table=table.table, schema=table.schema)
    if kind := kinds.pop(here, None):
        what_it_is = _KINDS.get(kind, f"a {kind}")
        return QueueError(f"{table} is {what_it_is}, not a queue table; correct {what} or its schema.")
    near = [str(replace(each, catalog=table.catalog)) for each, kind in kinds.items() if kind == "table"]
    but = f", but there is {' and '.join(near)}" if near else ""
    return QueueError(
        f"There is no queue table {table} {where}{but}; create it with: sqlqueue create "
        f"{for_shell(address)}, or correct {what} or its schema."
    )


def read_statement(
    dialect: Dialect, table: QueueTable, name: str = "read", in_transit: Sequence[int] = ()
) -> Statement:
    """The statement that reads (or takes) a range of rows in all columns of the stream.

    :param in_transit: the rows that are taken although they may be messages in transit.
    """
    if name == "read" and table.row_versions and dialect.statement("read_versions"):
        name = "read_versions"
    present = table.spelled
    optional = {name: dialect.quote(name) if name.lower() in present else "NULL" for name in OPTIONAL_COLUMNS}
    numbers = ", ".join(map(str, map(int, in_transit))) or "NULL"
    made = dialect.render(name, queue=dialect.table(table.table), in_transit=numbers, **optional)
    return replace(made, queue=table.name)


class Queue:
    """A queue table on an open connection."""

    def __init__(self, connection: Connection, table: QueueTable, *, guarded: bool = False) -> None:
        """:param guarded: no option names it, so that no statement may run code of its owner, a stranger."""
        self.connection = connection
        self.table = table
        self.guarded = guarded
        self._guarded_since: int | None = None
        self._sessions: set[int] = set()
        self._quoted = connection.dialect.table(table.table)

    @property
    def name(self) -> str:
        return self.table.name

    def claim(self, after: int, up_to: int, limit: int) -> ClaimedColumns | None:
        """Lock the next rows above ``after``, stepping over rows that others hold; None if there are none."""
        found = self._execute("claim", "claiming from", after=after, up_to=up_to, count=limit)
        return self.connection.dialect.claimed(found)

    def claim_runs(self, runs: RowSet) -> Iterator[ClaimedColumns]:
        """Lock those of these rows that are free; gives them in ascending order."""
        dialect = self.connection.dialect
        for chunk in runs.chunks(dialect.chunk):
            rows = self._execute("claim_runs", "claiming from", **dialect.bind(chunk))
            found = dialect.claimed(sorted(rows, key=_ROW_VERSION))
            if found is not None:
                yield found

    def count(self, after: int, up_to: int) -> int:
        """How many rows stand above ``after`` and up to ``up_to``, free or held."""
        count: int = self._execute("count_range", after=after, up_to=up_to)[0][0]
        return count

    def look(self, after: int, up_to: int, limit: int) -> ClaimedColumns | None:
        """Find the next rows above ``after`` without locking them; expired rows are not told apart."""
        found = self._execute("look", after=after, up_to=up_to, count=limit)
        return self.connection.dialect.claimed(found)

    def announce(self, sessions: set[int], *, workers_take: bool = False) -> None:
        """Tell other streams on the queue, as long as the connection lives, that this session is a stream's.

        :param sessions: the sessions of the stream; the queue's own is added, if the engine tells streams
            apart.
        :param workers_take: whether the stream's workers take rows, in sessions of their own.
        """
        self._sessions = sessions
        for (session,) in self._execute("announce", "opening", workers_take=int(workers_take)):
            sessions.add(session)

    def first_reader(self, program: str) -> bool:
        """Whether no session has said so before for this program, and lives. This one says it now."""
        return bool(self._execute("first_reader", "opening", name=f"{program} {self.name}")[0][0])

    def oldest(self, after: int, left_to: int, onward: int, count: int) -> Oldest:
        """Look which of the oldest rows are free, and lock none.

        The look goes over the rows above ``after`` and up to ``left_to``, and then over rows above
        ``onward``, until it has seen ``count`` free rows. Rows that streams of ours hold do not count.
        """
        most = count + max(_HELD, count // 8)
        bound = {
            "after": after,
            "left_to": left_to,
            "onward": onward,
            "most": most,
            "count": count,
            "own": sorted(self._sessions),
        }
        found = self._execute("oldest", "claiming from", **bound)
        before, held, first, last, free, looked, streams, looking = found[0]
        return Oldest(
            free_before=before,
            held=held,
            floor=max(left_to, onward) if first is None else first - 1,
            last=max(left_to, onward) if last is None else last,
            free=free,
            enough=free >= count or looked >= most,
            streams=streams,
            looking=looking,
        )

    def headers_of(self, row_versions: Sequence[int]) -> dict[int, str | None]:
        """The headers of those of these rows that are there."""
        runs = RowSet.of(row_versions)
        return dict(self._execute("headers_of", **self.connection.dialect.bind(runs)))

    def lock_in_transit(self, row_versions: Sequence[int]) -> list[InTransit]:
        """Lock those of these rows that are free, and read them whole, in RowVersion order."""
        dialect = self.connection.dialect
        self._guard()
        runs = RowSet.of(row_versions)
        statement = read_statement(dialect, self.table, "lock_in_transit")
        found = self.connection.execute(
            statement, dialect.bind(runs), doing=Doing("moving on messages of", self.name)
        )
        return sorted(InTransit(*row) for row in found)

    def clean_indexes(self) -> bool:
        """Remove index entries of deleted rows, outside of a transaction; False if the engine does it."""
        statement = self._render("clean_indexes")
        if statement:
            self.connection.maintain(statement, doing=Doing("cleaning indexes of", self.name))
        return bool(statement)

    def lock(self, runs: RowSet) -> Iterator[tuple[int, int]]:
        """Lock what is left of these rows, and wait for those that others hold.

        :returns: RowVersion and bytes of each row, in ascending order.
        :raises RowsHeld: another session held one of them for too long.
        """
        for chunk in runs.chunks(self.connection.dialect.chunk):
            statement, bound = self._of_runs("lock", chunk)
            with rows_awaited():
                found = self._execute(statement, "locking rows again in", **bound)
            for row_version, size, *_ in sorted(found, key=_ROW_VERSION):
                yield row_version, size

    def delete(self, runs: RowSet) -> int:
        """Delete these rows, which this transaction has locked, and return how many there were."""
        self._guard()
        doing = Doing("deleting from", self.name)
        deleted = 0
        for chunk in runs.chunks(self.connection.dialect.chunk):
            statement, bound = self._of_runs("delete", chunk)
            deleted += self.connection.modify(self._render(statement), bound, doing=doing)
        return deleted

    def ids(self, row_versions: Sequence[int]) -> dict[int, str]:
        """The row ids of those of these rows that are there, by RowVersion, in RowVersion order.

        :raises QueueError: a row has no id.
        """
        runs = RowSet.of(row_versions)
        found = self._execute("ids", "checking rows of", **self.connection.dialect.bind(runs))
        found.sort(key=_ROW_VERSION)
        for row_version, row_id in found:
            if row_id is None:
                raise QueueError(
                    f"The row with RowVersion {row_version} of {self.name} has no Id, by which its "
                    "batch would be known again after a crash; give it one, or delete it."
                )
        return {row_version: row_id.lower() for row_version, row_id in found}

    def origins(self, runs: RowSet) -> dict[int, tuple[str, str | None]]:
        """Of those of these rows that are there: the Id, and the header of the origin."""
        found = self._execute("origins", "checking rows of", **self.connection.dialect.bind(runs))
        return {
            version: (row_id or "", header and header.partition('"')[0]) for version, row_id, header in found
        }

    def identity(self) -> str | None:
        """The identity of the table that has the name now: another table may get it while a stream runs."""
        table = self.table.table
        found = self._execute("identity", "identifying", schema=table.schema, name=table.table)
        return _identity(found[0]) if found else None

    def highest(self) -> int | None:
        highest: int | None = self._execute("highest")[0][0]
        return highest

    def ends(self) -> tuple[int, int] | None:
        """The lowest and the highest RowVersion that are there at one moment; None when nothing is."""
        lowest, highest = self._execute("ends")[0]
        return None if lowest is None or highest is None else (min(lowest, highest), max(lowest, highest))

    def waiting(self, after: int) -> Waiting | None:
        """What waits above ``after``; None when nothing does."""
        rows = self._execute("waiting", after=after)
        if not rows:
            return None
        first, highest, headers, now = rows[0]
        # When the first row is seen, the highest may be gone again, or may not be visible yet.
        count = 1 if highest is None else max(1, highest - first + 1)
        return Waiting(min(count, HIGHEST), headers, now.replace(tzinfo=UTC))

    def holders(self, runs: RowSet) -> list[Holder]:
        """Who holds locks on rows between the ends of these runs; on SQL Server on any row of the table."""
        rows = self._execute("holders", "looking who holds rows of", first=runs.first, last=runs.last)
        return [Holder(*row) for row in rows]

    def _of_runs(self, statement: str, runs: RowSet) -> tuple[str, Parameters]:
        """The statement for these runs, and its parameters. A single run has a statement of its own."""
        if len(runs) == runs.last - runs.first + 1:
            return f"{statement}_range", {"first": runs.first, "last": runs.last}
        return statement, self.connection.dialect.bind(runs)

    def _guard(self) -> None:
        """Look, once while locks are kept, whether code of a stranger would run.

        :raises QueueError: it would.
        """
        if not self.guarded or self._guarded_since == self.connection.freed:
            return
        if table_code.keep_out(self.connection, self.table.table):
            self._guarded_since = self.connection.freed
        if why := _of_strangers(self.connection, self.table.table, table_code.DELETE):
            self._guarded_since = None
            raise QueueError(f"{self.name} is left alone: {why}; to receive from it, name it in queues.")

    def _execute(self, statement: str, doing: str = "looking at", /, **parameters: object) -> list[Row]:
        self._guard()
        bound = {**self.table.identified, **parameters}
        return self.connection.execute(self._render(statement), bound, doing=Doing(doing, self.name))

    def _render(self, statement: str) -> Statement:
        dialect = self.connection.dialect
        return dialect.render(statement, queue=self._quoted, catalog=dialect.quote(self.table.database))
