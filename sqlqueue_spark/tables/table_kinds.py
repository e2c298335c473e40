"""The tables of a database that belong to queues: recognised by their columns, counted, with their age."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.driver_errors import Doing
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.database_facts import database, now
from sqlqueue_spark.tables.delayed import DelayedTable
from sqlqueue_spark.tables.subscriptions import readable_tables

QUEUE, DELAYED, OUTBOX, STAGE = "queue", "delayed", "outbox", "stage"
_SUBSCRIPTIONS = "subscriptions"
_FAR = 6e10  # seconds: times that are further away Python may not know
#: The primary key of a table of each kind, where an engine needs one.
_KEYS: dict[str, tuple[str, ...]] = {
    QUEUE: ("seq",),
    STAGE: ("seq",),
    DELAYED: ("id",),
    OUTBOX: ("MessageId",),
    _SUBSCRIPTIONS: ("endpoint", "topic"),
}

#: A table of this many bytes is counted only on demand: to read it takes a second or two.
TOO_LARGE = 64 << 20

_OUTBOX = {"messageid", "dispatched", "dispatchedat", "persistenceversion", "operations"}
_STAGES = ({"task", "destination", "headers", "bodies", "mark"}, {"task", "destination", "headers", "body"})
_DELAYED = {"headers", "body", "due"}


@dataclass(frozen=True, kw_only=True)
class FoundTable:
    """A table, which kind it is, and how many rows it has by the catalogue or the statistics.

    :ivar name: as :attr:`QueueTable.name`.
    :ivar stranger: the owner, if that is neither this login nor an administrator; else empty.
    """

    kind: str
    table: Table
    name: str
    object_id: int
    estimate: int
    stranger: str = ""


class OldestMessage(NamedTuple):
    """The oldest message of a table: its headers, when it is due, and the time by the database's clock."""

    headers: str | None
    due: datetime | None
    now: datetime


def find(connection: Connection, schema: str = "") -> list[FoundTable]:
    """The tables of queues in this database, in the order of their names.

    :param schema: only those of this schema; all where it is empty.
    """
    here = database(connection)
    statement = connection.dialect.statement("tables")
    rows = connection.execute(statement, {"schema": schema}, doing="looking for tables of queues")
    # Not by the estimate: on SQL Server each column of a table may tell another one.
    tables = [list(its) for _, its in groupby(rows, lambda row: row[:3])]
    return [
        FoundTable(
            kind=kind,
            table=Table(table=name, schema=its_schema),
            name=str(Table(table=name, schema=its_schema, catalog=here)),
            object_id=object_id,
            estimate=estimate,
            stranger=stranger,
        )
        for its in tables
        for its_schema, name, object_id, _, estimate, stranger in its[:1]
        if (kind := kind_of(connection.dialect, (row[3] for row in its)))
    ]


def unidentified(connection: Connection) -> dict[Table, tuple[str, ...]]:
    """Tables of ours whose rows nothing may change or delete, because a publication has them without a key.

    :returns: each table with the key that it lacks.
    """
    statement = connection.dialect.statement("unidentified")
    if not (rows := connection.execute(statement, doing="looking for published tables")):
        return {}
    keys = {each.table: _KEYS[each.kind] for each in find(connection)}
    keys |= dict.fromkeys(readable_tables(connection), _KEYS[_SUBSCRIPTIONS])
    published = {Table(table=name, schema=schema) for schema, name in rows}
    return {table: key for table, key in keys.items() if table in published}


def kind_of(dialect: Dialect, columns: Iterable[str]) -> str | None:
    """Which kind of table has these columns; None where it is no queue's."""
    names = {name.lower() for name in columns}
    if any(names >= each for each in _STAGES):
        return STAGE
    if dialect.has_queue_columns(names):
        return QUEUE
    return OUTBOX if names >= _OUTBOX else DELAYED if names >= _DELAYED else None


def rows(connection: Connection, found: FoundTable, *, exact: bool = False) -> int | None:
    """How many rows a table has; None where a count would have to read too much.

    :param exact: count whatever it costs.
    """
    statement = connection.dialect.render("count_rows", queue=connection.dialect.table(found.table))
    bound = {"object_id": found.object_id, "too_many": HIGHEST if exact else TOO_LARGE}
    counted = connection.execute(statement, bound, doing=f"counting {found.name}")
    return counted[0][0] if counted else found.estimate


def oldest(connection: Connection, found: FoundTable) -> OldestMessage | None:
    """What is known of a table's oldest message; None where there is none, or no index finds it."""
    if found.kind == QUEUE:
        statement = connection.dialect.render("waiting", queue=connection.dialect.table(found.table))
        first = connection.execute(statement, {"after": LOWEST}, doing=Doing("looking at", found.name))
        return OldestMessage(first[0][2], None, first[0][3].replace(tzinfo=UTC)) if first else None
    if found.kind != DELAYED:
        return None
    if (seconds := DelayedTable(connection, found.table).first_due_in()) is None:
        return None
    moment = now(connection)
    return OldestMessage(None, moment + timedelta(seconds=seconds) if abs(seconds) < _FAR else None, moment)
