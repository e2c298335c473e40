"""Puts messages back into their queue that were parked while a database was down. Then they are received once more, and sent as ever.

A portion is one transaction, so a message is in one place, whatever dies.
"""

from __future__ import annotations

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.messages.outgoing import new_row_ids, uuid_text
from sqlqueue_spark.messages.parked import end_of, waits_for
from sqlqueue_spark.tables import delayed
from sqlqueue_spark.tables.delayed import DelayedTable, Forwarded
from sqlqueue_spark.tables.insert import columns_of, present_columns
from sqlqueue_spark.tables.queues import QueueTable

#: Most messages that go back in one transaction.
_PORTION = 4_000


def awaited(connection: Connection, queue: QueueTable) -> set[str]:
    """The databases that messages of a queue wait for, as the messages name them.

    :param connection: one with no open transaction.
    """
    with connection.transaction():
        found = delayed.find(connection, queue.table)
        ends = [] if found is None else DelayedTable(connection, found.table).awaited(end_of(None))
    return {name for each in ends if (name := waits_for(each)) is not None}


def release(connection: Connection, queue: QueueTable, database: str) -> int:
    """Put back into a queue what waits in its table of delayed messages for a database; returns how many messages that were.

    A message that somebody holds stays for the next time.

    :param connection: one with no open transaction.
    :param database: as the messages name it.
    """
    dialect = connection.dialect
    most = min(_PORTION, dialect.chunk)
    with connection.transaction():
        found = delayed.find(connection, queue.table)
        columns = ", ".join(map(dialect.quote, present_columns(columns_of(connection, queue))))
    if found is None:
        return 0
    table, to = DelayedTable(connection, found.table), dialect.table(queue.table)
    since: str | None = None
    total = 0
    while True:
        with connection.transaction():
            parked = table.lock_parked(end_of(database), since, most)
            if parked:
                messages = [Forwarded(each, each.before, each.rest) for each in parked]
                ids = [uuid_text(each) for each in new_row_ids(len(parked)).to_pylist()]
                table.send(to, columns, messages, ids)
                fail_points.step(fail_points.PARKED_SENT)
        if not parked:
            return total
        fail_points.step(fail_points.PARKED_RELEASED)
        total += len(parked)
        since = str(parked[-1].due)
