"""Puts rows back into their queue that have waited for a database, when it takes messages again.

What waits is the received row, as its outcome: the outbox knows it by its origin. The row that goes back
keeps that origin and is received as any other. A portion goes back in one transaction, so a message is in one
place, whatever dies.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables import delayed
from sqlqueue_spark.tables.delayed import DelayedTable, Forwarded
from sqlqueue_spark.tables.queue_table import QueueTable

#: Most messages that go back in one transaction.
_PORTION = 2_400


def awaited(connection: Connection, queues: Iterable[Table]) -> set[str]:
    """The databases that messages of these queues wait for, as the messages name them."""
    with connection.transaction():
        found = [delayed.find(connection, each) for each in queues]
        tables = [DelayedTable(connection, each.table) for each in found if each is not None]
        return {each.database for table in tables for each in table.waiting() if each.database is not None}


def put_back(
    connection: Connection, queue: QueueTable, database: str, before: Callable[[], object] = lambda: None
) -> tuple[int, datetime | None]:
    """Put back into a queue what waits for a database. What another session holds stays for the next time.

    :param database: as the messages name it.
    :param before: is called before a portion goes back.
    :returns: how many messages that were, and when the first of them would have been given up.
    """
    most = min(_PORTION, connection.dialect.chunk)
    with connection.transaction():
        found = delayed.find(connection, queue.table)
    if found is None:
        return 0, None
    table = DelayedTable(connection, found.table)
    first = since = None
    total = 0
    while True:
        with connection.transaction():
            if waiting := table.lock_waiting(database, since, most):
                before()
                table.send(queue, [Forwarded(each, each.before, "}") for each in waiting])
                fail_points.step(fail_points.WAITING_SENT)
        if not waiting:
            return total, first
        first = first or _moment(waiting[0].due)
        fail_points.step(fail_points.WAITING_PUT_BACK)
        total += len(waiting)
        since = waiting[-1].due


def _moment(due: object) -> datetime:
    """A time of a delayed table, in UTC; the zone of the database does not matter for a wait of days."""
    told = due if isinstance(due, datetime) else datetime.fromisoformat(str(due))
    return told.replace(tzinfo=UTC)
