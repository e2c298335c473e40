"""Sends messages, chunk by chunk: one transaction a chunk and database, all or nothing, each message id once.

Protocol of a chunk with an outbox: find which ids were not sent before, insert those rows and those ids, commit.
Optimistic: the ids come last, and a unique violation means that a twin won: roll back and look again. Pessimistic: the
ids come first, so that a twin waits. A retry of any kind sends only what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connections import Connection, Target, connect
from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.errors import ConnectionLost, Duplicate, QueueError, TryAgain
from sqlqueue_spark.options import OPTIMISTIC, SinkOptions
from sqlqueue_spark.send.destinations import Destination, Destinations, Placed, place
from sqlqueue_spark.send.message_builder import Composed
from sqlqueue_spark.send.outbox_keys import EARLIER_VERSION, earlier_keys
from sqlqueue_spark.tables.insert import Inserter
from sqlqueue_spark.tables.outbox import OutboxTable

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Sent:
    """How many messages went out, and how many had been sent before."""

    sent: int = 0
    repeated: int = 0


class Sender:
    """Sends over connections of its own, one a database."""

    def __init__(self, options: SinkOptions, destinations: Destinations) -> None:
        self._options = options
        self._destinations = destinations
        self._connections: dict[Target, Connection] = {}
        self._committing = False
        self._seen: Collection[str] | None = None
        self._patience = Retry(f"sending by {options.sender or 'a sink'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def send(self, chunks: Iterable[Composed]) -> Sent:
        """Send messages in their order, each chunk in a transaction of its own.

        :raises QueueError: a destination or the outbox table is missing, or has a row with one of the rows' own Ids.
        :raises TryAgain: the database gave way too often. What was sent is in the outbox: sending all again is safe.
        """
        done = Sent()
        for chunk in chunks:
            for target, placed in self._placed(chunk).items():
                sent = self._retried(target, partial(self._send, target, chunk, placed))
                done.sent += sent
                done.repeated += sum(len(each.positions) for each in placed) - sent
        return done

    def _placed(self, chunk: Composed) -> dict[Target, list[Placed]]:
        """The messages of a chunk by database and table."""
        databases: dict[Target, list[Placed]] = {}
        for placed in place(chunk.destinations(), self._find):
            databases.setdefault(placed.destination.target, []).append(placed)
        for each in databases.values():  # as all others do, so that nobody waits for another in a circle
            each.sort(key=lambda placed: placed.destination.table.address)
        return databases

    def _find(self, address: str) -> Destination:
        return self._destinations.find(address, self._connected)

    def _send(self, target: Target, chunk: Composed, placed: Sequence[Placed]) -> int:
        """One transaction; how many messages went out."""
        self._committing, self._seen = False, None
        connection = self._connected(target)
        if not self._options.uses_outbox:
            with connection.transaction():
                sent = sum(_insert(connection, to, chunk, positions) for to, positions in placed)
                self._committing = True
            return sent
        outbox = OutboxTable(connection, self._options.sender or "", self._options.default_schema)
        keyed = [(each.destination, _keyed(chunk, each)) for each in placed]
        ids = [each for _, positions in keyed for each in positions]
        earlier = self._earlier_keys(connection, outbox, chunk, keyed)

        def insert(old: Container[str]) -> int:
            return sum(
                _insert(connection, to, chunk, [at for key, at in positions.items() if key not in old])
                for to, positions in keyed
            )

        with connection.transaction():
            known = {earlier[each] for each in outbox.seen_of(earlier, EARLIER_VERSION)}
            if self._options.outbox == OPTIMISTIC:
                seen = self._seen = outbox.seen(ids) | known
                fail_points.step(fail_points.IDS_CHECKED)
                sent = insert(seen)
                fail_points.step(fail_points.ROWS_INSERTED)
                outbox.add(each for each in ids if each not in seen)
                fail_points.step(fail_points.IDS_INSERTED)
            else:
                seen = self._seen = set(ids) - outbox.add_new(each for each in ids if each not in known)
                fail_points.step(fail_points.IDS_INSERTED)
                sent = insert(seen)
                fail_points.step(fail_points.ROWS_INSERTED)
        fail_points.step(fail_points.CHUNK_SENT)
        return sent

    def _earlier_keys(
        self,
        connection: Connection,
        outbox: OutboxTable,
        chunk: Composed,
        keyed: Sequence[tuple[Destination, Mapping[str, int]]],
    ) -> dict[str, str]:
        """By what an earlier version may have known the messages, and their keys; nothing where it left no rows."""

        def look() -> bool:
            with connection.transaction():
                return outbox.may_hold(EARLIER_VERSION)

        if not self._destinations.holds_earlier_keys(connection.target, look):
            return {}
        own = self._own_table()
        return {
            each: key
            for to, positions in keyed
            for key, at in positions.items()
            for each in earlier_keys(chunk.ids[at], to.table.name, own=to.table.name == own)
        }

    def _own_table(self) -> str | None:
        """The table of the option ``queue``; None where there is none, or rows go only elsewhere."""
        try:
            return self._options.queue and self._find(self._options.queue).table.name
        except QueueError:
            return None

    def _connected(self, target: Target) -> Connection:
        if target not in self._connections:
            connection = connect(target, again=target in self._destinations.databases())
            level = _snake(self._options.isolation_level)
            try:
                with connection.transaction():
                    connection.execute(connection.dialect.statement(f"isolation_{level}"))
            except BaseException:
                connection.close()
                raise
            self._connections[target] = connection
        return self._connections[target]

    def _retried(self, target: Target, action: Callable[[], int]) -> int:
        """Run a transaction, again when the database gave way; after a lost commit only where an outbox knows its fate."""
        before: Collection[str] | None = None

        def worth_it(error: TryAgain) -> bool:
            nonlocal before
            if isinstance(error, Duplicate):
                last, before = before, self._seen
                # A twin that won has added ids, so that the next look sees more than the last one.
                return self._options.uses_outbox and (last is None or last != self._seen)
            return self._options.uses_outbox or not self._committing

        def failed(error: TryAgain) -> None:
            if isinstance(error, ConnectionLost):
                lost = self._connections.pop(target, None)
                if lost is not None:
                    lost.close()
            elif isinstance(error, Duplicate):
                log.info("twin_won: %s", error)

        try:
            return self._patience.retried(action, worth_it, on_failure=failed)
        except Duplicate as error:
            raise QueueError(
                f"{error} If the rows have Ids of their own, one of these is taken: leave the column Id out, and each row "
                "gets a new one; what makes a message go out once is its MessageId."
            ) from error


def _insert(
    connection: Connection, destination: Destination, chunk: Composed, positions: Sequence[int]
) -> int:
    if positions:
        Inserter(connection, destination.table, destination.columns).insert(chunk.rows(positions))
    return len(positions)


def _keyed(chunk: Composed, placed: Placed) -> dict[str, int]:
    """The positions of the messages, each message once, by what the outbox is to know them by, in their order."""
    keys = chunk.keys(placed.destination.table.address, placed.positions)
    keyed = dict(zip(keys, placed.positions, strict=True))
    if len(keyed) < len(keys):  # some come more than once: the first of them goes out
        keyed = {}
        for key, at in zip(keys, placed.positions, strict=True):
            keyed.setdefault(key, at)
    return keyed


def _snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name).lstrip("_")
