"""Sends messages, chunk by chunk: one transaction a chunk and database, all or nothing, each message id once.

With an outbox the sender finds which ids of a chunk were not sent before, inserts their rows and these ids, and commits. In
the optimistic mode it inserts the ids last. A unique violation then means that a twin was faster: the sender rolls back and
looks again. In the pessimistic mode it inserts the ids first, so that a twin waits. A retry of any kind sends only what is
missing.
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
    """Sends messages over connections of its own, one for each database."""

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

        :raises QueueError: a destination or the outbox table is missing, or a destination already has a row with the Id that
            a row of the frame brings along.
        :raises TryAgain: the database gave way too often. The outbox knows what was sent, so it is safe to send all again.
        """
        done = Sent()
        for chunk in chunks:
            for target, placed in self._placed(chunk).items():
                sent = self._retried(target, partial(self._send, target, chunk, placed))
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

    def _send(self, target: Target, chunk: Composed, placed: Sequence[Placed]) -> int:
        """Send a chunk's messages for one database in one transaction; returns how many went out."""
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
        """The keys by which an earlier version may have known the messages, each with the present key.

        Empty where the outbox has no rows of that version.
        """

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
        """The name of the table of the option ``queue``; None if there is no such option or no such table."""
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
        """Run a transaction, and run it again when the database gave way.

        Where the answer to a commit was lost, only an outbox can tell what became of it. Without one it is not run again.
        """
        before: Collection[str] | None = None

        def worth_it(error: TryAgain) -> bool:
            nonlocal before
            if isinstance(error, Duplicate):
                last, before = before, self._seen
                # A twin that was faster has added ids, so the next look sees more than the last one.
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
    """The outbox key of each message with the message's position, in the order of the chunk; each key once."""
    keys = chunk.keys(placed.destination.table.address, placed.positions)
    keyed = dict(zip(keys, placed.positions, strict=True))
    if len(keyed) < len(keys):  # some keys come more than once: the first message of each goes out
        keyed = {}
        for key, at in zip(keys, placed.positions, strict=True):
            keyed.setdefault(key, at)
    return keyed


def _snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name).lstrip("_")
