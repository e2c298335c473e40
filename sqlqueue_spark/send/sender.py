"""Sends messages, chunk by chunk: one transaction a chunk and database, all or nothing, each message id once."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Self

from sqlqueue_spark.engines.connect import Connection, Target, connect
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.errors import ConnectionLost, Duplicate, QueueError, TryAgain
from sqlqueue_spark.messages.acknowledgement import Owed
from sqlqueue_spark.options import OPTIMISTIC, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.copies import with_copies
from sqlqueue_spark.send.delivery import Delivery, Optimistic, Pessimistic, Unremembered, inserted
from sqlqueue_spark.send.destinations import Destinations, Placed
from sqlqueue_spark.send.outcome_delivery import OptimisticOutcomes, PessimisticOutcomes, inserted_outcomes
from sqlqueue_spark.send.outcomes import Decided, Outcomes
from sqlqueue_spark.send.parking import DatabaseDown, Parking
from sqlqueue_spark.send.routes import RolledBack, Routes
from sqlqueue_spark.send.sent import Sent

log = logger(__name__)


class Sender:
    """Sends messages over connections of its own, one for each database."""

    def __init__(self, options: SinkOptions, destinations: Destinations) -> None:
        self._options = options
        self._destinations = destinations
        self._connections: dict[Target, Connection] = {}
        self._routes = Routes(options, destinations, self._connected)
        self._retry = Retry(f"sending by {options.sender or 'a sink'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def send(self, chunks: Iterable[Composed | Outcomes]) -> Sent:
        """Send messages, or outcomes, in their order, each chunk in a transaction of its own.

        :raises QueueError: a destination or the outbox table is missing, or a destination already has a row with the Id that
            a row of the frame brings along.
        :raises TryAgain: the database gave way too often. The outbox knows what was sent, so it is safe to send all again.
        """
        done = Sent()
        for chunk in chunks:
            parts, nobody = self._with_copies(chunk)
            done += nobody
            for part in parts:
                done += self._sent(part) if isinstance(part, Composed) else self._outcomes_sent(part)
        return done

    def _with_copies(self, chunk: Composed | Outcomes) -> tuple[Sequence[Composed | Outcomes], Sent]:
        """The chunk with copies in the place of its events."""
        own = Target.of(self._options)
        return self._retry.retried(
            lambda: with_copies(self._routes, chunk),
            _may_come_back,
            on_failure=lambda error: self._gave_way(own, error),
        )

    def _sent(self, chunk: Composed, positions: Container[int] | None = None) -> Sent:
        """Send the messages of a chunk, or those of them at some positions."""
        chunk, placed = self._routes.placed(chunk)
        done = Sent()
        for target, its in by_database(placed, positions).items():
            try:
                done += self._delivered(target, self._delivery(chunk, its))
            except RolledBack as error:
                left = {at for each in its for at in each.positions}
                done += self._sent(self._routes.failing(chunk, error.refused), left)
        return done

    def _outcomes_sent(self, outcomes: Outcomes) -> Sent:
        """Send outcomes. One of which a message is refused fails, and the rest is tried again."""
        outcomes = self._routes.reachable(outcomes)
        while True:
            try:
                return self._delivered(Target.of(self._options), self._outcome_delivery(outcomes))
            except RolledBack as error:
                outcomes = self._routes.owners_failing(outcomes, error.refused)

    def acknowledging(self, owed: Mapping[int, Owed]) -> list[int]:
        """Those of these acknowledgements, by position, whose queue this sender's own database has."""
        return [at for at, each in owed.items() if self._routes.acknowledged_at(each.queue)]

    def parking(self, down: Mapping[Target, str]) -> Parking:
        """What parks messages in this sender's database whose own one is down."""
        return Parking(self._options, self._destinations, self._connected, dict(down))

    def _delivery(self, chunk: Composed, placed: Sequence[Placed]) -> Delivery:
        if not self._options.uses_outbox:
            return Unremembered(lambda connection: inserted(self._routes, connection, chunk, placed))
        delivery = Optimistic if self._options.outbox == OPTIMISTIC else Pessimistic
        return delivery(self._routes, chunk, placed)

    def _outcome_delivery(self, outcomes: Outcomes) -> Delivery:
        if not self._options.uses_outbox:
            everything = Decided(range(len(outcomes)))
            return Unremembered(
                lambda connection: inserted_outcomes(self._routes, connection, outcomes, everything)
            )
        delivery = OptimisticOutcomes if self._options.outbox == OPTIMISTIC else PessimisticOutcomes
        return delivery(self._routes, outcomes)

    def _connected(self, target: Target) -> Connection:
        if target not in self._connections:
            connection = connect(target, again=target in self._destinations.databases())
            level = re.sub(r"\B(?=[A-Z])", "_", self._options.isolation_level).lower()
            try:
                with connection.transaction():
                    connection.execute(connection.dialect.statement(f"isolation_{level}"))
            except BaseException:
                connection.close()
                raise
            self._connections[target] = connection
        return self._connections[target]

    def _delivered(self, target: Target, delivery: Delivery) -> Sent:
        """Attempt a delivery until it succeeds or another attempt is not worth it."""
        try:
            return self._retry.retried(
                lambda: delivery.attempt(self._connected(target)),
                lambda error: _may_come_back(error) and delivery.worth_it(error),
                on_failure=lambda error: self._gave_way(target, error),
            )
        except Duplicate as error:
            raise QueueError(
                f"{error} If the rows have Ids of their own, one of these is taken: leave the column Id out, and each row "
                "gets a new one; what makes a message go out once is its MessageId."
            ) from error

    def _gave_way(self, target: Target, error: TryAgain) -> None:
        if isinstance(error, ConnectionLost):
            lost = self._connections.pop(target, None)
            if lost is not None:
                lost.close()
        elif isinstance(error, Duplicate):
            log.info("twin_won: %s", error)


def _may_come_back(error: TryAgain) -> bool:
    """Whether to try again. Messages for a database that is down are parked instead."""
    return not isinstance(error, DatabaseDown)


def by_database(
    placed: Iterable[Placed], positions: Container[int] | None = None
) -> dict[Target, list[Placed]]:
    """The messages of a chunk by database and table, of those at these positions."""
    databases: dict[Target, list[Placed]] = {}
    for destination, its in placed:
        left = its if positions is None else [at for at in its if at in positions]
        if left:
            databases.setdefault(destination.target, []).append(Placed(destination, left))
    for each in databases.values():  # all senders do so, so that they never wait in a circle
        each.sort(key=lambda placed: placed.destination.table.address)
    return databases
