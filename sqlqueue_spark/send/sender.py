"""Sends messages, chunk by chunk: one transaction a chunk and database, all or nothing, each message id once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from sqlqueue_spark.engines.connections import Connection, Target, connect
from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.errors import ConnectionLost, Duplicate, QueueError, TryAgain
from sqlqueue_spark.options import OPTIMISTIC, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.delivery import Delivery, Optimistic, Pessimistic, Unremembered
from sqlqueue_spark.send.destinations import Destination, Destinations, Placed, place
from sqlqueue_spark.send.message_builder import Composed
from sqlqueue_spark.send.sent_before import SentBefore

log = logger(__name__)


@dataclass(kw_only=True)
class Sent:
    """How many messages went out, and how many had been sent before."""

    sent: int = 0
    repeated: int = 0


class Sender:
    """Sends messages over connections of its own, one for each database."""

    def __init__(self, options: SinkOptions, destinations: Destinations) -> None:
        self._options = options
        self._destinations = destinations
        self._connections: dict[Target, Connection] = {}
        self._sent_before = SentBefore(options, destinations, self._connected)
        self._retry = Retry(f"sending by {options.sender or 'a sink'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def send(self, chunks: Iterable[Composed]) -> Sent:
        """Send messages in their order, each chunk in a transaction of its own.

        :raises QueueError: a destination or the outbox table is missing, or a destination already has a row with the Id that
            a row of the frame brings along.
        :raises TryAgain: the database gave way too often. The outbox knows what was sent, so it is safe to send all again.
        """
        done = Sent()
        for chunk in chunks:
            for target, placed in self._placed(chunk).items():
                sent = self._delivered(target, self._delivery(chunk, placed))
                done.sent += sent
                done.repeated += sum(len(each.positions) for each in placed) - sent
        return done

    def _placed(self, chunk: Composed) -> dict[Target, list[Placed]]:
        """Group the messages of a chunk by database and table."""
        databases: dict[Target, list[Placed]] = {}
        for placed in place(chunk.destinations(), self._find):
            databases.setdefault(placed.destination.target, []).append(placed)
        for each in databases.values():  # all senders do so, so that they never wait in a circle
            each.sort(key=lambda placed: placed.destination.table.address)
        return databases

    def _find(self, address: str) -> Destination:
        return self._destinations.find(address, self._connected)

    def _delivery(self, chunk: Composed, placed: Sequence[Placed]) -> Delivery:
        if not self._options.uses_outbox:
            return Unremembered(chunk, placed)
        delivery = Optimistic if self._options.outbox == OPTIMISTIC else Pessimistic
        return delivery(self._options, chunk, placed, partial(self._sent_before.earlier_keys, chunk))

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

    def _delivered(self, target: Target, delivery: Delivery) -> int:
        """Attempt a delivery until it succeeds or another attempt is not worth it; returns how many messages went out."""

        def failed(error: TryAgain) -> None:
            if isinstance(error, ConnectionLost):
                lost = self._connections.pop(target, None)
                if lost is not None:
                    lost.close()
            elif isinstance(error, Duplicate):
                log.info("twin_won: %s", error)

        try:
            return self._retry.retried(
                lambda: delivery.attempt(self._connected(target)), delivery.worth_it, on_failure=failed
            )
        except Duplicate as error:
            raise QueueError(
                f"{error} If the rows have Ids of their own, one of these is taken: leave the column Id out, and each row "
                "gets a new one; what makes a message go out once is its MessageId."
            ) from error
