"""What is known of the tables of places and of their databases. The driver finds it out for all tasks."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from sqlqueue_spark.engines.open_connection import Connection, Target
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, NO_OUTBOX, SinkOptions
from sqlqueue_spark.plain_text import logger, warn_once
from sqlqueue_spark.send.compose.database_of_address import Place, Places
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.outbox_keys import VERSION_0_1, VERSION_0_2
from sqlqueue_spark.tables.queue_table import QueueTable

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A queue table that was found, and the database that it is in."""

    target: Target
    table: QueueTable
    #: Whether an option of ours names it, in any letters, or messages came there; else a message may have.
    chosen: bool = True


#: What is known of a database (:meth:`Destinations.is_known`): its outbox has ids; there is a table of
#: subscriptions.
HAS_IDS, HAS_SUBSCRIPTIONS = "ids", "subscriptions"
#: A table with the rows (:data:`OUTGOING`) that go there.
Rows = tuple[Destination, pa.RecordBatch]

#: The seconds after which the driver looks for the destinations again. To look in each batch would cost a
#: connection, and some statements for each destination.
_FRESH_SECONDS = 60.0
_SHARED = (
    "shared_outbox outbox=%s endpoint=%s: another endpoint, whose name means the same table (as Shop.Spark "
    "and Shop_Spark do), has written into it, and what one has sent counts as sent for the other; give one "
    "of them another name"
)


class Destinations:
    """What is known. The driver hands it to the workers, so that they need not look.

    Meanwhile a table may be dropped, renamed or created. An insert names its table, so messages go to the
    table that has the name then. Where no table has it, the insert fails. Of a table that was created anew
    only the known columns can be wrong. If it lacks one of them, the insert fails. If it has further columns,
    they stay empty until the driver looks again.

    :param options: those of the database in which messages were received; for a sink alone, of its own one.
    :param away: those of the database of ``sink.url``, in which the destinations lie.
    """

    def __init__(
        self,
        options: SinkOptions,
        away: SinkOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.places = Places(options, away or options)
        #: The tables of places, and those in which delayed messages of places wait.
        self.found: dict[Place, Destination] = {}
        self.delayed: dict[Place, Destination] = {}
        self._facts: dict[tuple[str, Target], bool] = {}
        self._clock = clock
        self._since = clock()

    def is_known(self, fact: str, connection: Connection, look: Callable[[], bool]) -> bool:
        """Whether something is so in a connection's database.

        :param look: finds it out in a transaction, once for each database, and again after :meth:`forget`.
        """
        key = fact, connection.target
        if key not in self._facts:
            with connection.transaction():
                self._facts[key] = look()
        return self._facts[key]

    def knows(self, fact: str, target: Target) -> bool:
        """Whether it was found out that something is so in a database."""
        return self._facts.get((fact, target), False)

    def has_sent(self, connection: Connection) -> bool:
        """Whether the outbox of an atomic pipeline has any ids: then it has also sent in another mode.

        An atomic batch needs no outbox: what it sends goes out with its claim. But a batch that was sent in
        another mode, and whose rows are still in the queue, may come again in an atomic one: its checkpoint
        was lost, or is an older one.
        """
        options = self.options
        if options.transaction_mode != ATOMIC or options.outbox == NO_OUTBOX:
            return False

        def look() -> bool:
            try:
                outbox = OutboxTable.of_sink(connection, options)
            except ConfigurationError:  # no outbox can have this name
                return False
            return outbox.exists() and outbox.has_ids()

        return self.is_known(HAS_IDS, connection, look)

    def may_hold(self, outbox: OutboxTable, version: str) -> bool:
        """Whether an earlier version of this package may have written into an outbox."""
        return self.is_known(version, outbox.connection, partial(outbox.may_hold, version))

    def look_for_writers(self, outbox: OutboxTable) -> None:
        """Find out, for all tasks, which earlier versions and which other endpoints wrote into an outbox."""
        if self.is_known("shared", outbox.connection, outbox.is_shared):
            warn_once(log, _SHARED, outbox.name, outbox.endpoint)
        for version in (VERSION_0_1, VERSION_0_2):
            self.may_hold(outbox, version)

    def having_outboxes(self) -> list[Target]:
        """The databases whose outboxes this sink may ask: all, or with ``storeAndForward`` that at home."""
        if self.options.uses_outbox:
            return [self.places.at_home] if self.options.store_and_forward else self.places.everywhere()
        return [target for (name, target), known in self._facts.items() if known and name == HAS_IDS]

    def databases(self) -> list[Target]:
        """The databases of the tables that were found."""
        return list(dict.fromkeys(found.target for found in self.found.values()))

    def forget_if_old(self) -> None:
        """Forget after a minute what was found. Only the driver calls it: a worker's clock is another one."""
        if self._clock() - self._since >= _FRESH_SECONDS:
            self.forget()

    def forget(self) -> None:
        """Forget what was found, so that it is looked for again: a table may have been created or altered."""
        self.found.clear()
        self.delayed.clear()
        self._facts.clear()
        self._since = self._clock()


def nothing_passes_on(queue: str) -> ConfigurationError:
    """The error for an error or audit queue elsewhere, where no queue at home stores what is for it."""
    return ConfigurationError(
        f"The queue {queue!r} lies in another database, and nothing passes on what is written for it; name a "
        "queue of this database as storeAndForward, from which a store-and-forward job sends it on."
    )
