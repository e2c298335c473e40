"""Sends the messages of a store-and-forward queue to the other database, and sees to those that cannot go there.

The other database's outbox knows what it was sent. A message whose database is down is parked, and one that its table refuses fails: both
are outcomes of the received row, in the row's own database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlqueue_spark.engines.connect import Connection, Target
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.destinations import Destination, Destinations, Placed, place
from sqlqueue_spark.send.outcomes import Outcomes
from sqlqueue_spark.send.parking import DatabaseDown
from sqlqueue_spark.send.routes import RolledBack, Routes
from sqlqueue_spark.send.sender import Sender, by_database
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.stored_builder import Stored
from sqlqueue_spark.tables.insert import Why


@dataclass
class _Left:
    """The messages of a chunk that do not go to the other database, by their positions: those that wait, and those that fail."""

    waiting: list[tuple[str, Sequence[int]]] = field(default_factory=list)
    failed: list[Why[int]] = field(default_factory=list)

    @property
    def positions(self) -> list[int]:
        parts = [its for _, its in self.waiting] + [its for its, _ in self.failed]
        return sorted({at for its in parts for at in its})


class StoredSender(Sender):
    """Sends to the other database, and gives ``home`` what stays in the database in which the messages were received."""

    def __init__(
        self, options: SinkOptions, destinations: Destinations, home: Sender, down: Mapping[Target, str]
    ) -> None:
        """:param down: the databases that are known to be down, each with the name of the option that leads there."""
        super().__init__(options, destinations)
        self._routes = Routes(options, destinations, self._connected, received_elsewhere=True)
        self._home = home
        self._parking = home.parking(down)

    def send_stored(self, chunks: Iterable[Stored | Outcomes]) -> Sent:
        """Send in their order; errors as :meth:`Sender.send`."""
        done = Sent()
        for chunk in chunks:
            done += self._home.send([chunk]) if isinstance(chunk, Outcomes) else self._stored_sent(chunk)
        return done

    def _stored_sent(self, chunk: Stored) -> Sent:
        before = self._parking.parked_before(
            lambda queue: chunk.received(range(len(chunk.sends))).keys(queue).origins
        )
        told = self._home.acknowledging(chunk.sends.owed) if chunk.sends.owed else []
        if told:
            chunk = replace(chunk, sends=chunk.sends.acknowledging(told))
        left = _Left()
        parts, done = self._copied(chunk.sends, left)
        done += Sent(repeated=len(before))
        for part in parts:
            for target, its in by_database(self._placed(part, before, left)).items():
                done += self._sent_to(target, part, its, left)
        stays = left.positions
        if stays:
            done += self._home.send([self._outcomes(chunk, stays, left)])
        arrived = sorted(set(told).difference(stays, before))
        if arrived:  # ServiceControl is told where it put them back
            acknowledged = self._home.send([chunk.received(arrived)])
            done += replace(acknowledged, handled=0, repeated=0)
        return done

    def _copied(self, sends: Composed, left: _Left) -> tuple[Sequence[Composed], Sent]:
        """The messages with copies in the place of events; those events are added to ``left`` of which nobody can tell who wants them."""
        if sends.events is None:
            return [sends], Sent()
        try:
            parts, nobody = self._with_copies(sends)
            return [each for each in parts if isinstance(each, Composed)], nobody
        except DatabaseDown as down:
            self._wait(down, sends.events.positions(), left)
        except QueueError as error:  # there is no table of subscriptions
            left.failed.append((sends.events.positions(), error))
        others = sorted(set(range(len(sends))).difference(sends.events.positions()))
        return [sends.only(others)] if others else [], Sent()

    def _placed(self, sends: Composed, before: set[int], left: _Left) -> list[Placed]:
        """The messages by destination, without those that were parked before; what has no destination is added to ``left``."""
        found: list[tuple[str, Sequence[int]]] = []
        reached: dict[str, Destination] = {}
        for address, positions in sends.destinations():
            its = [at for at in positions if sends.source(at) not in before] if before else positions
            if not its:
                continue
            try:
                target, _ = self._destinations.where(address)
                if target in self._parking.down:
                    left.waiting.append((self._parking.down[target], _sources(sends, its)))
                    continue
                reached[address] = self._routes.find(address)
                found.append((address, its))
            except DatabaseDown as down:
                self._wait(down, _sources(sends, its), left)
            except (QueueError, ConfigurationError) as error:
                if isinstance(error, ConfigurationError) and error.may_pass:
                    raise
                left.failed.append((_sources(sends, its), error))
        return place(found, reached.__getitem__)

    def _sent_to(self, target: Target, sends: Composed, placed: Sequence[Placed], left: _Left) -> Sent:
        """Send messages to one database; those that it refuses, or all if it is down, are added to ``left``."""
        while placed:
            try:
                return self._delivered(target, self._delivery(sends, placed))
            except RolledBack as error:
                left.failed += [(_sources(sends, its), why) for its, why in error.refused]
                gone = {at for its, _ in error.refused for at in its}
                placed = by_database(
                    [Placed(to, [at for at in its if at not in gone]) for to, its in placed]
                ).get(target, [])
            except DatabaseDown as down:
                self._wait(down, _sources(sends, [at for _, its in placed for at in its]), left)
                break
        return Sent()

    def _wait(self, down: DatabaseDown, positions: Sequence[int], left: _Left) -> None:
        name = self._destinations.option_of(down.target)
        self._parking.note(down, name)
        left.waiting.append((name, positions))

    def _outcomes(self, chunk: Stored, positions: Sequence[int], left: _Left) -> Outcomes:
        """What becomes of the received rows of messages that do not go to the other database."""
        outcomes = chunk.received(positions)
        numbers = {at: number for number, at in enumerate(positions)}
        for database, its in left.waiting:
            outcomes = self._parking.parked(outcomes, map(numbers.__getitem__, its), database)
        for its, error in left.failed:
            failures = dict.fromkeys(map(numbers.__getitem__, its), Failure.of(error))
            outcomes = outcomes.failing(failures, self._destinations)
        return outcomes

    def _connected(self, target: Target) -> Connection:
        try:
            return super()._connected(target)
        except ConnectionLost as error:
            raise DatabaseDown(target, error) from error


def _sources(sends: Composed, positions: Sequence[int]) -> list[int]:
    """The received rows of which the messages at these positions were made, by their positions in the chunk."""
    return [sends.source(at) for at in positions]
