"""Tables of delayed messages, ``<name>.Delayed``: a message waits there until it is due for its queue.

Format: the tables of the .NET transports, which endpoints of the same name read and write too. The header
``NServiceBus.SqlServer.ForwardDestination`` of a message names its queue. Delays count by the database's
clock. On PostgreSQL ``due`` is the wall clock of UTC, read in the default time zone of the database.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, timedelta
from typing import NamedTuple

from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.arrow import pa, pc
from sqlqueue_spark.messages.header_json import ascii_json
from sqlqueue_spark.messages.outgoing import new_row_ids, replaced, uuid_text
from sqlqueue_spark.messages.waiting_headers import begin_of, waits_for
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.tables import queue_table
from sqlqueue_spark.tables.base_table import BaseTable
from sqlqueue_spark.tables.database_facts import now, to_create
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.table_code import check_went_in

#: Behind the name of the queue or the endpoint.
SUFFIX = ".Delayed"
#: No message is due before this: it is the earliest time of the type datetime.
_EARLIEST = "1753-01-01T00:00:00"
#: A retry after a longer delay, 100 years, is no retry.
LONGEST_DELAY = timedelta(days=36_525)
#: Other names of the time zone in which what is stored is what is meant.
_UTC = {"utc", "etc/utc", "gmt", "etc/gmt", "zulu", "etc/zulu", "uct", "etc/uct", "universal", "greenwich"}


class Due(NamedTuple):
    """A message that is due and locked: how its table finds it, and its headers in two parts.

    The first ``before`` characters of the headers are not read. ``rest`` follows them, with the header that
    says where the message goes. ``due`` is as the engine needs it. ``id`` is the Id of the row that the
    message becomes; None for a new one.
    """

    row: str
    before: int
    rest: str
    due: object = None
    id: str | None = None


class Forwarded(NamedTuple):
    """How a due message is sent: it keeps ``kept`` characters of its headers, with ``rest`` behind them."""

    due: Due
    kept: int
    rest: str


class DelayedPart(NamedTuple):
    """What waits in a table for a database or, where that is None, until it is due.

    ``first_due_in`` is negative if a message is overdue. One that waits for a database is given up then.
    """

    database: str | None
    rows: int
    due: int
    first_due_in: timedelta | None


def table_of(owner: Table) -> Table:
    """The table of the delayed messages of a queue or an endpoint; ``owner`` is the queue of that name."""
    return replace(owner, table=owner.table + SUFFIX)


def find(connection: Connection, owner: Table) -> QueueTable | None:
    """The table in which the delayed messages of a queue or an endpoint wait; None where there is none."""
    found = queue_table.find(connection, table_of(owner))
    return found if found is not None and found.due else None


def get(connection: Connection, owner: Table) -> QueueTable:
    """As :func:`find`.

    :raises QueueError: there is none, or its headers are no text or its body is no bytes.
    """
    if (found := find(connection, owner)) is None:
        raise QueueError(
            f"There is no table {table_of(owner)}, in which delayed messages wait, "
            f"{to_create(connection, f'delayed create {for_shell(str(owner))}')}."
        )
    columns = connection.dialect.queue_columns.items()
    queue_table.check_shape(
        found, {name: its for name, its in columns if name.lower() in queue_table.CONTENT}
    )
    return found


class DelayedTable(BaseTable):
    word = "delayed"
    doing = "looking for what is due in"
    creating = ("delayed_create", "delayed_index")
    index = ("index", "_Due")
    own_columns = frozenset({"due"})
    mistaken = "delayed messages: it has no column due; choose another name."

    def exists(self) -> bool:
        if there := super().exists():
            get(self.connection, replace(self.table, table=self.table.table.removesuffix(SUFFIX)))
        return there

    @property
    def zone(self) -> str:
        """Asked for anew for each statement: it may change while a mover runs."""
        return zone_of(self.connection) or "UTC"

    def first_due_in(self) -> float | None:
        """How many seconds it takes until the first message is due; None where none waits."""
        seconds = self.execute("delayed_next", zone=self.zone)[0][0]
        return None if seconds is None else float(seconds)

    def lock_due(self, count: int, since: Due | None = None) -> list[Due]:
        """Lock the next messages that are due, stepping over those that another mover holds.

        :param since: a message, to look only at those behind it; one without a row stands before its due.
        """
        given: dict[str, object] = {"zone": self.zone, "count": count}
        if since is not None:
            given |= {"since": since.due, "after": since.row}
        name = "delayed_due" if since is None else "delayed_due_behind"
        return [Due(*row) for row in self.execute(name, **given)]

    def lock_waiting(self, database: str | None, since: object, count: int) -> list[Due]:
        """Lock the next messages that wait for a database, in the order in which they are given up.

        :param database: as the messages name it; None for any.
        :param since: the ``due`` of the last one so far; None at first.
        """
        ending = self._written(begin_of(database))
        found = self.execute("delayed_waiting", ending=ending, since=since or _EARLIEST, count=count)
        return [Due(row, before, "}", due, id_) for row, before, due, id_ in found]

    def headers(self, due: Sequence[Due]) -> dict[str, tuple[str | None, str]]:
        """The Id, if the engine's table has one, and the whole headers of locked messages, by their rows."""
        nothing = [""] * len(due)
        bound = self.connection.dialect.bind_due([each.row for each in due], nothing, [0] * len(due), nothing)
        rows = self.execute("delayed_headers", **bound)
        return {row: (id_, headers) for row, id_, headers in rows}

    def send(self, to: QueueTable, messages: Sequence[Forwarded], *, anew: bool = False) -> None:
        """Move messages that :meth:`lock_due` has locked into a queue, in the order in which they are due.

        :param anew: whether all rows get new Ids: what was wrong with a row may be its Id.
        """
        dialect, new = self.connection.dialect, new_row_ids(len(messages)).to_pylist()
        brought = [None if anew else due.id for due, *_ in messages]
        ids = [own or uuid_text(each) for own, each in zip(brought, new, strict=True)]
        rows, kept, rests = zip(*((due.row, kept, rest) for due, kept, rest in messages), strict=True)
        bound = dialect.bind_due(rows, ids, kept, [self._written(rest) for rest in rests])
        quoted = ", ".join(map(dialect.quote, to.filled(dialect)))
        statement = self.render("delayed_send", queue=dialect.table(to.table), columns=quoted)
        left, took = self.connection.execute(statement, bound, doing=f"moving from {self.table}")[0]
        check_went_in(took, left, to.table)
        check_went_in(left, len(messages), to.table)

    def _written(self, headers: str) -> str:
        """Headers, or a part of them, as they stand in the database: with escapes where it lacks letters."""
        return headers if self.connection.holds_every_letter else ascii_json(headers)

    def waiting(self) -> list[DelayedPart]:
        """What waits; nothing where the table is empty. A database may stand there more than once."""
        found = self.execute("delayed_length", zone=self.zone, ending=begin_of(None))
        return [
            DelayedPart(
                waits_for(end) if end else None,
                int(rows),
                int(due),
                None if first is None else timedelta(seconds=float(first)),
            )
            for end, rows, due, first in found
        ]


def stored_dues(connection: Connection, messages: "pa.RecordBatch") -> "pa.RecordBatch":
    """Delayed messages (:data:`OUTGOING`) with their due times in ``expires``, as a table stores them.

    A delay counts from now by the database's clock.
    """
    dialect = connection.dialect
    due = messages["due"]
    if due.null_count:
        delays = messages["delay_ms"].cast(pa.duration("ms")).cast(pa.duration("us"))
        due = pc.coalesce(due, pc.add(pa.scalar(now(connection), due.type), delays))
    if (zone := zone_of(connection)) is not None:
        dues = [moment.replace(tzinfo=None) for moment in due.to_pylist()]
        rows = connection.execute(dialect.statement("delayed_stored"), {"dues": dues, "zone": zone})
        due = pa.array([moment.replace(tzinfo=UTC) for _, moment in sorted(rows)], due.type)
    return replaced(messages, expires=due)


def zone_of(connection: Connection) -> str | None:
    """The time zone by which the tables of a database tell times; None where that is UTC."""
    if not (statement := connection.dialect.statement("delayed_zone")):
        return None
    zone: str = connection.execute(statement, doing="asking for the database's time zone")[0][0]
    return None if zone.lower() in _UTC else zone
