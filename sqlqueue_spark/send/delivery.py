"""How a chunk's messages get into one database, so that each message id is sent once: without an outbox, optimistic, pessimistic.

An outbox and the queue tables are written in one transaction. It finds which ids of the chunk were not sent before, inserts
their rows and these ids, and is committed. The optimistic delivery inserts the ids last. A unique violation then means that a
twin was faster: the transaction is rolled back and the delivery looks again. The pessimistic delivery inserts the ids first,
so that a twin waits. A retry of any kind sends only what is missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connections import Connection
from sqlqueue_spark.errors import Duplicate, TryAgain
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.destinations import Destination, Placed
from sqlqueue_spark.send.message_builder import Composed
from sqlqueue_spark.send.outbox_keys import EARLIER_VERSION
from sqlqueue_spark.send.sent_before import Keyed
from sqlqueue_spark.tables.insert import Inserter
from sqlqueue_spark.tables.outbox import OutboxTable


class Delivery(ABC):
    """The messages of one chunk on their way into one database: tried until they are there, or until that is not worth it."""

    @abstractmethod
    def attempt(self, connection: Connection) -> int:
        """Send what is missing in one transaction; returns how many messages went out."""

    @abstractmethod
    def worth_it(self, error: TryAgain) -> bool:
        """Whether another attempt may succeed, and can send nothing twice."""


class Unremembered(Delivery):
    """Sends without an outbox, so nobody knows what became of a commit whose answer was lost."""

    def __init__(self, chunk: Composed, placed: Sequence[Placed]) -> None:
        self._chunk = chunk
        self._placed = placed
        self._committing = False

    def attempt(self, connection: Connection) -> int:
        self._committing = False
        with connection.transaction():
            sent = sum(_insert(connection, to, self._chunk, positions) for to, positions in self._placed)
            self._committing = True
        return sent

    def worth_it(self, error: TryAgain) -> bool:
        return not isinstance(error, Duplicate) and not self._committing


class Remembered(Delivery):
    """Sends by an outbox, which knows what went out."""

    def __init__(
        self,
        options: SinkOptions,
        chunk: Composed,
        placed: Sequence[Placed],
        earlier: Callable[[Connection, OutboxTable, Sequence[Keyed]], Mapping[str, str]],
    ) -> None:
        """:param earlier: the keys by which an earlier version may have known the messages, each with the present key."""
        self._options = options
        self._chunk = chunk
        self._keyed = [(each.destination, _keyed(chunk, each)) for each in placed]
        self._earlier = earlier
        #: The keys that the last attempt found in the outbox, and those found by the last one that met a duplicate.
        self._seen: set[str] | None = None
        self._seen_before: set[str] | None = None

    def attempt(self, connection: Connection) -> int:
        self._seen = None
        outbox = OutboxTable(connection, self._options.sender or "", self._options.default_schema)

        def insert(old: Container[str]) -> int:
            return sum(
                _insert(connection, to, self._chunk, [at for key, at in positions.items() if key not in old])
                for to, positions in self._keyed
            )

        earlier = self._earlier(connection, outbox, self._keyed)
        with connection.transaction():
            known = {earlier[each] for each in outbox.seen_of(earlier, EARLIER_VERSION)}
            sent = self._send(outbox, known, insert)
        fail_points.step(fail_points.CHUNK_SENT)
        return sent

    def worth_it(self, error: TryAgain) -> bool:
        """After a duplicate: a twin that was faster has added ids, so this look has seen more than the last one."""
        if not isinstance(error, Duplicate):
            return True
        before, self._seen_before = self._seen_before, self._seen
        return before is None or before != self._seen

    def _keys(self) -> list[str]:
        return [key for _, positions in self._keyed for key in positions]

    @abstractmethod
    def _send(self, outbox: OutboxTable, known: set[str], insert: Callable[[Container[str]], int]) -> int:
        """Write rows and ids in the open transaction, but for the ``known`` keys; returns how many messages went out."""


class Optimistic(Remembered):
    """Inserts the ids last."""

    def _send(self, outbox: OutboxTable, known: set[str], insert: Callable[[Container[str]], int]) -> int:
        keys = self._keys()
        seen = self._seen = outbox.seen(keys) | known
        fail_points.step(fail_points.IDS_CHECKED)
        sent = insert(seen)
        fail_points.step(fail_points.ROWS_INSERTED)
        outbox.add(each for each in keys if each not in seen)
        fail_points.step(fail_points.IDS_INSERTED)
        return sent


class Pessimistic(Remembered):
    """Inserts the ids first, so that a twin waits."""

    def _send(self, outbox: OutboxTable, known: set[str], insert: Callable[[Container[str]], int]) -> int:
        keys = self._keys()
        seen = self._seen = set(keys) - outbox.add_new(each for each in keys if each not in known)
        fail_points.step(fail_points.IDS_INSERTED)
        sent = insert(seen)
        fail_points.step(fail_points.ROWS_INSERTED)
        return sent


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
