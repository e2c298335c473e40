"""Finds the tables of places, once for a while, and tells their columns."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from sqlqueue_spark.engines.open_connection import Connected, Connection, Target
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.database_of_address import Place, Places
from sqlqueue_spark.send.deliver.subscribers import Subscribers
from sqlqueue_spark.tables import delayed, queue_table
from sqlqueue_spark.tables.database_facts import database
from sqlqueue_spark.tables.queue_table import QueueTable


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A queue table that was found, and the database that it is in."""

    target: Target
    table: QueueTable
    #: Whether an option of ours names it, in any letters, or messages came there; else a message may have.
    chosen: bool = True


#: What is known of an outbox that has ids (:meth:`Destinations.is_known`).
HAS_IDS = "ids"
#: A table with the rows (:data:`OUTGOING`) that go there.
Rows = tuple[Destination, pa.RecordBatch]

#: The seconds after which the driver looks for the destinations again. To look in each batch would cost a
#: connection, and some statements for each destination.
_FRESH_SECONDS = 60.0


class Destinations:
    """Finds each table once. The driver hands what it found to the workers, so that they need not look.

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
        self._clock = clock
        self._subscribers: dict[Target, Subscribers] = {}
        self._found: dict[Place, Destination] = {}
        self._delayed: dict[Place, Destination] = {}
        self._facts: dict[tuple[str, Target], bool] = {}
        self._found_since = 0.0
        #: Whether the table of subscriptions is there.
        self._publishes = False

    def beside(self, address: str, connected: Connected) -> Destination | None:
        """The error queue, the audit queue or that of an acknowledgement; None where it lies elsewhere.

        Errors as :meth:`at`.
        """
        place = self.places.beside(address)
        return self.at(place, address, connected) if place.target == self.places.at_home else None

    def received(self, queue: str, connected: Connected) -> Destination:
        """A queue in which messages were received. Errors as :meth:`at`."""
        return replace(self.at(self.places.received(queue), queue, connected), chosen=True)

    def at(self, place: Place, address: str, connected: Connected) -> Destination:
        """The table of a place; this needs no right to read it.

        :param address: as the user or the message gave it.
        :raises QueueError: there is no such table.
        """
        if (found := self._found.get(place)) is None:
            target, table = place
            with connected(target).transaction() as connection:
                if target not in self.places.databases:
                    self.places.databases[target] = database(connection)
                if (queue := queue_table.find_queue(connection, table)) is None:
                    raise queue_table.missing(
                        connection, table, address, f"to send to{self._told(target)}", "the destination"
                    )
                ours, name = self.places.chosen, table.table.casefold()
                alike = (its for where, its in ours if where == target and its.table.casefold() == name)
                there = (queue_table.find(connection, each) for each in alike)
                same = (each is not None and each.address == queue.address for each in there)
                found = Destination(target=target, table=queue, chosen=place in ours or any(same))
            if not self._found:
                self._found_since = self._clock()
            self._found[place] = found
        return found

    def _told(self, target: Target) -> str:
        """How a sentence names a database that is not home."""
        return "" if target == self.places.at_home else f" in the database of {self.places.option_of(target)}"

    def waiting(self, place: Place, connected: Connected) -> Destination:
        """The table in which delayed messages of a queue or endpoint wait.

        :param place: the queue, or the queue of the endpoint.
        :raises QueueError: there is no such table.
        """
        if (found := self._delayed.get(place)) is None:
            with connected(place.target).transaction() as connection:
                found = Destination(target=place.target, table=delayed.get(connection, place.table))
            self._delayed[place] = found
        return found

    def subscribers(self, places: Places) -> Subscribers:
        """Those that have subscribed to events, in the database in which these places lie."""
        options = places.away
        return self._subscribers.setdefault(Target.of(options), Subscribers(options, self._clock))

    def check_subscriptions(self, connected: Connected) -> None:
        """:raises QueueError: there is no table of subscriptions; the text says how to create it."""
        if not self._publishes:
            self.subscribers(self.places).check(connected)
            self._publishes = True

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

    def having_outboxes(self) -> list[Target]:
        """The databases whose outboxes this sink asks."""
        if self.options.uses_outbox:
            asked = [Target.of(self.places.away)] if self._publishes else []
            return list(dict.fromkeys([*self.databases(), *asked]))
        return [target for (fact, target), known in self._facts.items() if known and fact == HAS_IDS]

    def databases(self) -> list[Target]:
        """The databases of the tables that were found."""
        return list(dict.fromkeys(found.target for found in self._found.values()))

    def forget_if_old(self) -> None:
        """Forget after a minute what was found. Only the driver calls it: a worker's clock is another one."""
        if self._clock() - self._found_since >= _FRESH_SECONDS:
            self.forget()

    def forget(self) -> None:
        """Forget what was found, so that it is looked for again: a table may have been created or altered."""
        self._found.clear()
        self._delayed.clear()
        self._facts.clear()
        self._publishes = False


def check_one_database(destinations: Destinations, addresses: Iterable[str]) -> None:
    """Refuse a destination in another database, because one transaction cannot reach it.

    :raises ConfigurationError: a destination lies in another database; the text names it.
    """
    places = destinations.places
    for address in addresses:
        place = places.destination(address)
        if place.target != places.at_home and not places.is_stored(place):
            raise ConfigurationError(
                f"The destination {address!r} lies in another database, which transactionMode "
                "sendsAtomicWithReceive cannot reach in one transaction; send to it with receiveOnly and an "
                "outbox, or name a queue of this database as storeAndForward."
            )


def nothing_passes_on(queue: str) -> ConfigurationError:
    """The error for an error or audit queue elsewhere, where no queue at home stores what is for it."""
    return ConfigurationError(
        f"The queue {queue!r} lies in another database, and nothing passes on what is written for it; name a "
        "queue of this database as storeAndForward, from which a store-and-forward job sends it on."
    )
