"""The statements that receivers run on one queue table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import NamedTuple

from sqlqueue_spark.engines.connection import Connection, Row, rows_awaited
from sqlqueue_spark.engines.dialect import ClaimedColumns, Dialect
from sqlqueue_spark.engines.driver_errors import Doing
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Naming, Table
from sqlqueue_spark.messages.body import LARGEST_ROW
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.tables import delayed, queue_table, table_code
from sqlqueue_spark.tables.queue_table import OPTIONAL_COLUMNS, QueueTable

#: The RowVersion of a row, to sort the rows of a statement that gives them in any order.
_ROW_VERSION = itemgetter(0)
#: How many rows more than wanted a look for free rows goes over, at least: others hold some.
_HELD = 100


class Waiting(NamedTuple):
    """What waits behind a row: its ends in RowVersions, the oldest row's headers, the database's clock."""

    first: int
    last: int
    headers: str | None
    now: datetime

    @property
    def rows(self) -> int:
        """How many rows wait, at most."""
        return min(self.last - self.first + 1, HIGHEST)


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


#: Statements that read no row of the table, and so run no code of its owner.
_OF_CATALOGUE = {"indexes", "index_names", "space", "numbers", "settings"}


def get(connection: Connection, address: str, naming: Naming, *, shaped: bool = True) -> "Queue":
    """The queue at an address; ``shaped`` as for :func:`at`.

    :raises QueueError: there is no such table.
    """
    table = naming.table(address)
    if (queue := at(connection, table, shaped=shaped)) is None:
        raise queue_table.missing(connection, table, "in this database", "the queue name")
    return queue


def not_received(connection: Connection, table: Table) -> str | None:
    """Why nothing is received from a queue that no option names: what of a stranger would run as this login.

    A handler's answers may be stored in the queue, and its retries in the table of its delayed messages.
    """
    ways = [(table, table_code.DELETE), (table, table_code.INSERT)]
    if (later := delayed.find(connection, table)) is not None:
        ways.append((later.table, table_code.INSERT))
    found = (queue_table.left_alone(connection, each, event, shaped=each == table) for each, event in ways)
    return next(filter(None, found), None)


def at(connection: Connection, table: Table, *, guarded: bool = False, shaped: bool = True) -> "Queue | None":
    """The queue of a table; None where there is none. Errors as :func:`queue_table.find_queue`.

    :param guarded: as for a queue.
    :param shaped: whether it must have the columns of one; else its columns are not checked.
    """
    found = (queue_table.find_queue if shaped else queue_table.find)(connection, table)
    if found is None:
        return None
    statement = connection.dialect.render("storage", catalog=connection.dialect.quote(found.database))
    rows = connection.execute(statement, found.identified, doing=Doing("asking about", found.name))
    row_versions, heap = map(bool, rows[0])
    table_ = replace(found, row_versions=row_versions, keeps_skipped=heap)
    return Queue(connection, table_, guarded=guarded)


def read_statement(
    dialect: Dialect, table: QueueTable, name: str = "read", in_transit: Sequence[int] = ()
) -> Statement:
    """The statement that reads (or takes) a range of rows in all columns of the stream.

    :param in_transit: the rows that are taken although they may be messages in transit.
    """
    if name == "read" and table.row_versions and dialect.statement("read_versions"):
        name = "read_versions"
    numbers = ", ".join(map(str, map(int, in_transit))) or "NULL"
    return replace(dialect.render(name, in_transit=numbers, **_names(dialect, table)), queue=table.name)


def _names(dialect: Dialect, table: QueueTable) -> Mapping[str, str]:
    """What statements name: a queue, its database, the columns that it may lack, and the largest row."""
    optional = {
        each: dialect.quote(each) if each.lower() in table.spelled else "NULL" for each in OPTIONAL_COLUMNS
    }
    own = {"queue": dialect.table(table.table), "catalog": dialect.quote(table.database)}
    return {**own, "largest_row": str(LARGEST_ROW), **optional}


class Queue:
    """A queue table on an open connection."""

    def __init__(self, connection: Connection, table: QueueTable, *, guarded: bool = False) -> None:
        """:param guarded: no option names it, so that no statement may run code of its owner, a stranger."""
        self.connection = connection
        self.table = table
        self.guarded = guarded
        self._guarded_since: int | None = None
        self._sessions: set[int] = set()
        self._names = _names(connection.dialect, table)

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
            if (found := dialect.claimed(sorted(rows, key=_ROW_VERSION))) is not None:
                yield found

    def count(self, after: int, up_to: int) -> int:
        """How many rows stand above ``after`` and up to ``up_to``, free or held."""
        return int(self._execute("count_range", after=after, up_to=up_to)[0][0])

    def look(self, after: int, up_to: int, limit: int) -> ClaimedColumns | None:
        """Find the next rows above ``after`` without locking them; expired rows are not told apart."""
        return self.connection.dialect.claimed(self._execute("look", after=after, up_to=up_to, count=limit))

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
        bound = {"after": after, "left_to": left_to, "onward": onward, "most": most, "count": count}
        found = self._execute("oldest", "claiming from", **bound, own=sorted(self._sessions))
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

    def headers_of(self, row_versions: Iterable[int]) -> dict[int, tuple[str, str | None]]:
        """The Id and the headers of those of these rows that are there."""
        found = self._execute("headers_of", **self.connection.dialect.bind(RowSet.of(row_versions)))
        return {row_version: (row_id or "", headers) for row_version, row_id, headers in found}

    def lock_in_transit(self, row_versions: Sequence[int]) -> list[InTransit]:
        """Lock those of these rows that are free, and read them whole, in RowVersion order."""
        bound = self.connection.dialect.bind(RowSet.of(row_versions))
        found = self._execute("lock_in_transit", "moving on messages of", **bound)
        return sorted(InTransit(*row) for row in found)

    def clean_indexes(self) -> bool:
        """Remove index entries of deleted rows, outside of a transaction; False if the engine does it."""
        if statement := self._render("clean_indexes"):
            self.connection.maintain(statement, doing=Doing("cleaning indexes of", self.name))
        return bool(statement)

    def lock(self, runs: RowSet) -> Iterator[tuple[int, int]]:
        """Lock what is left of these rows, and wait for those that others hold.

        :returns: RowVersion and bytes of each row, in ascending order.
        :raises RowsHeld: another session held one of them for too long.
        """
        for chunk in runs.chunks(self.connection.dialect.chunk):
            with rows_awaited():
                found = self._execute("lock", "locking rows again in", **self.connection.dialect.bind(chunk))
            for row_version, size, *_ in sorted(found, key=_ROW_VERSION):
                yield row_version, size

    def delete(self, runs: RowSet) -> int:
        """Delete these rows, which this transaction has locked, and return how many there were."""
        self._guard()
        doing = Doing("deleting from", self.name)
        deleted = 0
        for chunk in runs.chunks(self.connection.dialect.chunk):
            statement, bound = "delete", self.connection.dialect.bind(chunk)
            if len(chunk) == chunk.last - chunk.first + 1:  # the usual claim, which goes twice as fast
                statement, bound = "delete_range", {"first": chunk.first, "last": chunk.last}
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

    def identity(self) -> str | None:
        """The identity of the table that has the name now: another table may get it while a stream runs."""
        table = self.table.table
        found = self._execute("identity", "identifying", schema=table.schema, name=table.table)
        return queue_table.identity_of(found[0]) if found else None

    def highest(self) -> int:
        """The highest RowVersion that is there; ``LOWEST`` where nothing is."""
        highest: int | None = self._execute("highest")[0][0]
        return LOWEST if highest is None else highest

    def waiting(self, after: int) -> Waiting | None:
        """What waits above ``after``; None when nothing does."""
        if not (rows := self._execute("waiting", after=after)):
            return None
        first, last, headers, now = rows[0]
        # When the first row is seen, the highest may be gone again, or may not be visible yet.
        return Waiting(first, max(first, last or LOWEST), headers, now.replace(tzinfo=UTC))

    def present(self, row_versions: Sequence[int]) -> list[int]:
        """Those of these rows that are there, in RowVersion order."""
        found = self._execute("ids", **self.connection.dialect.bind(RowSet.of(row_versions)))
        return sorted(row_version for row_version, _ in found)

    def holders(self, runs: RowSet) -> list[Holder]:
        """Who holds locks on rows between the ends of these runs; on SQL Server on any row of the table."""
        rows = self._execute("holders", "looking who holds rows of", first=runs.first, last=runs.last)
        return [Holder(*row) for row in rows]

    def _guard(self) -> None:
        """Look, once while locks are kept, whether code of a stranger would run.

        :raises QueueError: it would.
        """
        if not self.guarded or self._guarded_since == self.connection.freed:
            return
        if table_code.keep_out(self.connection, [self.table.table]):
            self._guarded_since = self.connection.freed
        if why := not_received(self.connection, self.table.table):
            self._guarded_since = None
            raise QueueError(f"{self.name} is left alone: {why}; to receive from it, name it in queues.")

    def _execute(self, statement: str, doing: str = "looking at", /, **parameters: object) -> list[Row]:
        if statement not in _OF_CATALOGUE:
            self._guard()
        bound = {**self.table.identified, "name": self._names["queue"], **parameters}
        return self.connection.execute(self._render(statement), bound, doing=Doing(doing, self.name))

    def _render(self, statement: str) -> Statement:
        return self.connection.dialect.render(statement, **self._names)
