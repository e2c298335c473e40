"""Finds the table of each message of a chunk."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlqueue_spark import errors
from sqlqueue_spark.engines.open_connection import Connected, Connection, Target
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, SqlQueueError
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.chunk import Chunk
from sqlqueue_spark.send.compose.column_values import gathered, grouped
from sqlqueue_spark.send.compose.database_of_address import Place, Places
from sqlqueue_spark.send.deliver.destination_tables import HAS_IDS, Destination, Destinations
from sqlqueue_spark.tables import delayed, queue_table
from sqlqueue_spark.tables.database_facts import database

log = logger(__name__)

#: Errors of a database that takes nothing, after all retries.
TAKES_NOTHING = (ConnectionLost, errors.DatabaseTakesNothing, errors.LockTimeout, errors.RowsHeld)


class DatabaseDown(ConnectionLost):
    """A database other than home takes nothing, so rows for it wait."""


@dataclass(frozen=True, kw_only=True)
class Addressed:
    """The messages of a chunk that go to one table.

    :param positions: theirs in the chunk, in ascending order.
    :param target: the database in which they are written, or fail.
    :param place: what their address means; None where it cannot be read.
    :param known_as: the final address, as far as it can be known.
    :param to: the table in which they are written; None where it cannot be reached, and ``error`` says why.
    :param stored_for: the full address in another database for which they are only stored in that table.
    """

    positions: Sequence[int]
    target: Target
    place: Place | None
    known_as: str
    to: Destination | None = None
    error: SqlQueueError | None = None
    stored_for: str | None = None


@dataclass
class Routes:
    """Finds tables over the connections of one task, or of the driver. Each is looked for once.

    :param atomic: whether one transaction must reach all of them.
    :param down: the databases that are down; None where rows do not wait for them. Those that the task finds
        are added.
    """

    destinations: Destinations
    connected: Connected
    atomic: bool = False
    down: set[Target] | None = None
    #: The places that this task could not reach, so that it looks for each only once.
    _unreachable: dict[object, SqlQueueError] = field(default_factory=dict)

    @property
    def remembers(self) -> bool:
        """Whether an outbox may know messages."""
        return self.destinations.options.uses_outbox or self.destinations.knows(HAS_IDS, self.places.at_home)

    @property
    def places(self) -> Places:
        return self.destinations.places

    def reached(self, target: Target) -> Connection:
        """A connection to a database, whose name is known from then on. Addresses may name it."""
        connection = self.connected(target)
        if target not in self.places.databases:
            with connection.transaction():
                self.places.databases[target] = database(connection)
        return connection

    def beside(self, address: str) -> Destination | None:
        """The error queue, the audit queue or that of an acknowledgement; None where it lies elsewhere.

        Errors as :meth:`at`.
        """
        place = self.places.beside(address)
        return self.at(place) if place.target == self.places.at_home else None

    def received(self, queue: str) -> Destination:
        """A queue in which messages were received. Errors as :meth:`at`."""
        return replace(self.at(self.places.received(queue)), chosen=True)

    def at(self, place: Place) -> Destination:
        """The table of a place; this needs no right to read it.

        :raises QueueError: there is no such table.
        """
        known, places = self.destinations.found, self.places
        if place not in known:
            target, table = place
            with self.reached(target).transaction() as connection:
                if (queue := queue_table.find_queue(connection, table)) is None:
                    of = f" in the database of {places.option_of(target)}" if target != places.at_home else ""
                    where = f"to send to{of}"
                    raise queue_table.missing(connection, table, where, "the destination")
                name = table.table.casefold()
                alike = (its for at, its in places.chosen if at == target and its.table.casefold() == name)
                named = (queue_table.find(connection, each) for each in alike)
                same = (each is not None and each.address == queue.address for each in named)
                chosen = place in places.chosen or any(same)
            known[place] = Destination(target=target, table=queue, chosen=chosen)
        return known[place]

    def waiting(self, place: Place) -> Destination:
        """The table in which delayed messages of a queue or endpoint wait.

        :param place: the queue, or the queue of the endpoint.
        :raises QueueError: there is no such table.
        """
        known = self.destinations.delayed
        if place not in known:
            with self.connected(place.target).transaction() as connection:
                known[place] = Destination(target=place.target, table=delayed.get(connection, place.table))
        return known[place]

    def later(self, target: Target) -> Destination:
        """The table in which messages for a database wait until they are due. Errors as :meth:`waiting`."""
        return self.waiting(self.places.sends_later(target))

    def is_down(self, target: Target) -> bool:
        """Whether this task knows that a database is down, and rows for it wait."""
        return self.down is not None and target in self.down

    def note_down(self, target: Target, error: DatabaseDown) -> None:
        """Note that a database is down, so that this task tries it no more."""
        assert self.down is not None, "the error says that rows wait"
        if target not in self.down:
            self.down.add(target)
            log.warning("rows_wait database=%s: it takes nothing: %s", self.places.option_of(target), error)

    def addressed(self, chunk: Chunk) -> list[Addressed]:
        """The messages of a chunk by table; several addresses may mean one."""
        sends = grouped(chunk.sends.addresses)
        found = [each for address, its in sends for each in self._of(address, its.to_pylist(), chunk)]
        tables = gathered(
            found,
            lambda each: (each.place, each.known_as, each.to and each.to.table.address, each.stored_for),
        ).values()
        positions = [sorted(at for each in alike for at in each.positions) for alike in tables]
        return [replace(one, positions=its) for (one, *_), its in zip(tables, positions, strict=True)]

    def _of(self, address: str, positions: Sequence[int], chunk: Chunk) -> Iterator[Addressed]:
        home, later = self.places.at_home, chunk.sends.delayed
        try:
            place = chunk.places.destination(address)
            stored_in = self._stored_in(place, positions, chunk)
            if self.atomic and not stored_in:
                self.places.check_one_database(address)
        except ConfigurationError as unread:
            error = self._logged(address, unread)
            known_as = f"\0{json.dumps(address)}"  # no table is known so, nor with any other NUL behind it
            yield Addressed(positions=positions, target=home, place=None, known_as=known_as, error=error)
            return
        if not stored_in:
            yield self._reached(place, address, positions, later=later)
        for queue, its in stored_in.items():
            to = self.received(queue)
            if later:
                self.later(home)
            yield Addressed(
                positions=its,
                target=home,
                place=Place(home, place.table),
                known_as=f"{place.table}\0stored",
                to=to,
                stored_for=chunk.places.full_address(place),
            )

    def _stored_in(self, place: Place, positions: Sequence[int], chunk: Chunk) -> Mapping[str, Sequence[int]]:
        """The queues at home in which messages to a place are stored for another database, if they are."""
        if place.target == self.places.at_home:
            return {}
        store, rows = self.places.home.store_and_forward, chunk.rows
        if store is None and rows is not None and rows.handled and not self.atomic:
            return gathered(positions, lambda at: rows.queue(chunk.owners[at]))
        # Another queue's job passes on what stands in its store. An atomic batch reaches no other database.
        goes_on = rows is not None and rows.on_their_way and not self.atomic
        return {} if store is None or goes_on else {store: positions}

    def _reached(self, place: Place, address: str, positions: Sequence[int], *, later: bool) -> Addressed:
        """The messages to a place, with its table if that can be reached and its database is not down."""
        to: Destination | None = None
        error: SqlQueueError | None = None
        try:
            found = self.found(place, address)
            if later and isinstance(found, Destination):
                self.later(found.target)
            to, error = (found, None) if isinstance(found, Destination) else (None, found)
        except DatabaseDown as lost:
            self.note_down(place.target, lost)
        # The name of its database is known once the table was looked for.
        known_as = self.places.known_as(place) if to is None else to.table.address
        return Addressed(
            positions=positions, target=place.target, place=place, known_as=known_as, to=to, error=error
        )

    def found(self, place: Place, address: str) -> Destination | SqlQueueError:
        """The table of a place, or why it cannot be reached."""
        if place not in self._unreachable:
            try:
                return self.at(place)
            except (QueueError, ConfigurationError) as error:
                if isinstance(error, ConfigurationError) and error.may_pass:
                    raise
                self._unreachable[place] = self._logged(address, error)
        return self._unreachable[place]

    def _logged(self, address: str, error: SqlQueueError) -> SqlQueueError:
        if address not in self._unreachable:
            log.warning("unreachable destination=%s: %s", address, error)
            self._unreachable[address] = error
        return error

    def acknowledged_at(self, queue: str, *, stores: bool) -> Destination | Place | None:
        """The queue that gets an acknowledgement, or its place in another database; None where there is none.

        :param stores: whether an acknowledgement for another database can be stored at home.
        """
        try:
            place = self.places.beside(queue)
        except ConfigurationError as error:
            self._logged(queue, error)
            return None
        if place.target != self.places.at_home:
            return place if stores else None
        found = self.found(place, queue)
        return found if isinstance(found, Destination) else None
