"""Lists the tables of this package in a database, with their rows and the age of the oldest message."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlqueue_spark.engines.open_connection import Connection, Target, connect
from sqlqueue_spark.errors import ConnectionLost, QueueError, SqlQueueError
from sqlqueue_spark.messages.header_json import time_sent
from sqlqueue_spark.messages.message import since
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import table_code, table_kinds
from sqlqueue_spark.tables.queue_table import passed_over
from sqlqueue_spark.tables.table_kinds import FoundTable


@dataclass(frozen=True, kw_only=True)
class TableOverview:
    """One table. A field that is not known is None.

    :ivar exact: whether the rows were counted; otherwise ``rows`` is an estimate.
    :ivar overdue: how long the first message of a delayed table has been due; negative if none is due yet.
    """

    kind: str
    table: str
    rows: int
    exact: bool
    oldest_sent: datetime | None
    oldest_age: timedelta | None
    overdue: timedelta | None
    problem: str | None


def overview(
    options: ConnectionOptions, *, schema: str | None = None, exact: bool = False
) -> Iterator[TableOverview]:
    """Yield the queues, outboxes, delayed tables and stages of the database, ordered by name.

    Each table is read in its own transaction. No row is locked, so other sessions do not wait. Where reading
    a table would run code of a stranger, the rows are an estimate, and ``problem`` says so.

    :param exact: count large tables too; this reads them to the end.
    """
    with connect(Target.of(options)) as connection:
        with connection.transaction():
            found = table_kinds.find(connection, schema or "")
        for each in found:
            yield _overview_of(connection, each, exact=exact)


def _overview_of(connection: Connection, found: FoundTable, *, exact: bool) -> TableOverview:
    counted = oldest = problem = None
    try:
        with connection.transaction():
            shaped = found.kind == table_kinds.QUEUE
            why = found.stranger and passed_over(connection, found.table, table_code.LOOK, shaped=shaped)
            if why:
                raise QueueError(f"not looked at: {why}")
            counted = table_kinds.rows(connection, found, exact=exact)
            oldest = table_kinds.oldest(connection, found)
    except ConnectionLost:
        raise
    except SqlQueueError as error:
        counted, oldest, problem = None, None, str(error)
    sent = time_sent(oldest.headers) if oldest else None
    return TableOverview(
        kind=found.kind,
        table=found.name,
        rows=found.estimate if counted is None else counted,
        exact=counted is not None,
        oldest_sent=sent,
        oldest_age=since(sent, oldest.now) if oldest else None,
        overdue=oldest.now - oldest.due if oldest and oldest.due else None,
        problem=problem,
    )
