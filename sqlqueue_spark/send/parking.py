"""Parks the messages of a task whose database is down: they wait in their queue's table of delayed messages. All others go on.

What is parked is the received row, as the outcome of its message: the outbox knows it by its origin. So a batch that runs again sends
nothing of it. When the database is back, the row goes back into its queue, is received as another one, and is sent as ever. A portion goes
back in one transaction, so a message is in one place, whatever dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connect import Connection, Target
from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.messages.outgoing import new_row_ids, uuid_text
from sqlqueue_spark.messages.parked import end_of, waits_for
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.outbox_keys import PARKED, day_keys
from sqlqueue_spark.send.outcomes import Outcomes
from sqlqueue_spark.tables import delayed
from sqlqueue_spark.tables.delayed import DelayedTable, Forwarded
from sqlqueue_spark.tables.insert import columns_of, present_columns
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.queues import QueueTable

log = logger(__name__)

#: Most messages that go back in one transaction.
_PORTION = 4_000


class DatabaseDown(ConnectionLost):
    """A database other than that of the received messages is down, so messages for it wait."""

    def __init__(self, target: Target, error: ConnectionLost) -> None:
        super().__init__(str(error))
        self.target = target


@dataclass
class Parking:
    """What a task knows of databases that are down.

    :param options: those of the database in which the messages were received, and ``destinations`` finds their queues there.
    :param connected: gives a connection to it, with no open transaction.
    """

    options: SinkOptions
    destinations: Destinations
    connected: Callable[[Target], Connection]
    #: The databases that are down, each with the name of the option that leads there.
    down: dict[Target, str] = field(default_factory=dict)

    @property
    def possible(self) -> bool:
        """Whether messages can be parked: an outbox remembers it, and an error queue takes what has waited for too long."""
        return self.options.uses_outbox and self.options.error_queue is not None

    def note(self, error: DatabaseDown, name: str) -> None:
        """Note that a database is down, so that this task does not try it again."""
        if error.target not in self.down:
            log.warning("parking database=%s: it is down, and messages for it wait: %s", name, error)
            self.down[error.target] = name

    def parked_before(self, origins: Callable[[Callable[[str], str]], Sequence[str]]) -> set[int]:
        """Those of some received messages, by position, that were parked in an earlier try: nothing of them is sent.

        :param origins: gives the outbox keys of their origins, if it is given what finds the final address of a queue. It is asked
            only where any messages were parked at all.
        """
        if not self.possible:
            return set()
        connection = self.connected(Target.of(self.options))
        outbox = OutboxTable(connection, self.options.sender or "", self.options.default_schema)
        days = day_keys(PARKED, datetime.now(UTC), self.options.keep_deduplication_data_for)
        with connection.transaction():
            if not outbox.seen(days):
                return set()
        asked = origins(lambda queue: self.destinations.find(queue, self.connected).table.address)
        with connection.transaction():
            known = outbox.seen(asked)
        return {at for at, origin in enumerate(asked) if origin in known}

    def parked(self, outcomes: Outcomes, positions: Iterable[int], database: str) -> Outcomes:
        """The received messages, of which these wait for a database."""
        failure = Failure(
            exception_type="DatabaseDown", waits_for=database, give_up_after=self.options.give_up_after
        )
        return outcomes.failing(dict.fromkeys(positions, failure), self.destinations)


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

    A message that another session holds stays for the next time.

    :param connection: one with no open transaction.
    :param database: as the messages name it.
    """
    most = min(_PORTION, connection.dialect.chunk)
    with connection.transaction():
        found = delayed.find(connection, queue.table)
        columns = present_columns(columns_of(connection, queue))
    if found is None:
        return 0
    table = DelayedTable(connection, found.table)
    since: str | None = None
    total = 0
    while True:
        with connection.transaction():
            parked = table.lock_parked(end_of(database), since, most)
            if parked:
                messages = [Forwarded(each, each.before, each.rest) for each in parked]
                ids = [uuid_text(each) for each in new_row_ids(len(parked)).to_pylist()]
                table.send(queue.table, columns, messages, ids)
                fail_points.step(fail_points.PARKED_SENT)
        if not parked:
            return total
        fail_points.step(fail_points.PARKED_RELEASED)
        total += len(parked)
        since = str(parked[-1].due)
