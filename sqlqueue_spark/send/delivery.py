"""How a chunk's messages get into one database, so that each message id is sent once: without an outbox, optimistic, pessimistic.

An outbox and the queue tables are written in one transaction. It finds which ids of the chunk were not sent before, inserts
their rows and these ids, and is committed. The optimistic delivery inserts the ids last. A unique violation then means that a
twin was faster: the transaction is rolled back and the delivery looks again. The pessimistic delivery inserts the ids first,
so that a twin waits. A retry of any kind sends only what is missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from datetime import UTC, datetime

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.errors import Duplicate, TryAgain
from sqlqueue_spark.messages.acknowledgement import acknowledgements
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.destinations import Placed, Rows
from sqlqueue_spark.send.outbox_keys import EARLIER_VERSION, FAILED, day_key, day_keys
from sqlqueue_spark.send.outbox_lookups import keys_before
from sqlqueue_spark.send.routes import RolledBack, Routes
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.insert import Inserter
from sqlqueue_spark.tables.outbox import OutboxTable

#: Inserts the messages whose keys are not among these.
_Insert = Callable[[Container[str]], Sent]


class Delivery(ABC):
    """The messages of one chunk on their way into one database: tried until they are there, or until that is not worth it."""

    @abstractmethod
    def attempt(self, connection: Connection) -> Sent:
        """Send what is missing in one transaction.

        :raises RolledBack: a destination refuses messages, which may go to the error queue instead.
        """

    @abstractmethod
    def worth_it(self, error: TryAgain) -> bool:
        """Whether another attempt may succeed, and can send nothing twice."""


class Unremembered(Delivery):
    """Sends without an outbox. What became of a commit is not known if its answer was lost."""

    def __init__(self, insert: Callable[[Connection], Sent]) -> None:
        self._insert = insert
        self._committing = False

    def attempt(self, connection: Connection) -> Sent:
        self._committing = False
        with connection.transaction():
            sent = self._insert(connection)
            self._committing = True
        return sent

    def worth_it(self, error: TryAgain) -> bool:
        return not isinstance(error, Duplicate) and not self._committing


class Looking(Delivery):
    """Sends by an outbox, at which each attempt looks first."""

    #: The keys that the last attempt found in the outbox, and those found by the last one that met a duplicate.
    _seen: set[str] | None = None
    _seen_before: set[str] | None = None

    def worth_it(self, error: TryAgain) -> bool:
        """After a duplicate: a twin that was faster has added keys, so this look has seen more than the last one."""
        if not isinstance(error, Duplicate):
            return True
        before, self._seen_before = self._seen_before, self._seen
        return before is None or before != self._seen


class Remembered(Looking):
    """Knows a message by its key, which says where it goes."""

    def __init__(self, routes: Routes, chunk: Composed, placed: Sequence[Placed]) -> None:
        self._routes = routes
        self._options = routes.options
        self._chunk = chunk
        self._placed = placed
        self._finals: dict[str, str] = {}

    def attempt(self, connection: Connection) -> Sent:
        self._seen = None
        now = datetime.now(UTC)
        outbox = self._routes.outbox(connection)
        keyed = [(each.destination, self._keyed(each)) for each in self._placed]

        def insert(old: Container[str]) -> Sent:
            placed = [
                Placed(to, [at for key, at in positions.items() if key not in old]) for to, positions in keyed
            ]
            return inserted(self._routes, connection, self._chunk, placed)

        earlier = keys_before(self._routes, self._chunk, connection, outbox, keyed)
        with connection.transaction():
            known = {earlier[each] for each in outbox.seen_of(earlier, EARLIER_VERSION)}
            known |= self._went_another_way(outbox, now)
            keys = [key for _, positions in keyed for key in positions]
            sent = self._send(outbox, keys, known, insert)
            if sent.failed:  # last, because others wait for it until this transaction ends
                outbox.add_new([day_key(FAILED, now.date())])
        fail_points.step(fail_points.CHUNK_SENT)
        total = sum(len(each.positions) for each in self._placed)
        return sent + Sent(repeated=total - sent.sent - sent.failed)

    def _final(self, address: str) -> str:
        """The final address of a message that has failed, which is looked for before the transaction begins."""
        if address not in self._finals:
            self._finals[address] = self._routes.final(address)
        return self._finals[address]

    def _keyed(self, placed: Placed) -> dict[str, int]:
        """The outbox key of each message with the message's position, in the order of the chunk; each key once."""
        keys = self._chunk.keys(placed.destination.known_as, placed.positions, self._final)
        keyed = dict(zip(keys, placed.positions, strict=True))
        if len(keyed) < len(keys):  # some keys come more than once: the first message of each goes out
            keyed = {}
            for key, at in zip(keys, placed.positions, strict=True):
                keyed.setdefault(key, at)
        return keyed

    def _went_another_way(self, outbox: OutboxTable, now: datetime) -> set[str]:
        """The keys of those messages that went another way in an earlier try: they failed, or they were sent before they fail now."""
        if self._options.error_queue is None:
            return set()
        failing = any(self._chunk.failures(each.positions) for each in self._placed)
        if not failing and not outbox.seen(day_keys(FAILED, now, self._options.keep_deduplication_data_for)):
            return set()
        other: dict[str, str] = {}
        for to, positions in self._placed:
            other.update(self._chunk.other_keys(to.known_as, positions, self._final))
        return {other[each] for each in outbox.seen(other)}

    @abstractmethod
    def _send(self, outbox: OutboxTable, keys: Sequence[str], known: set[str], insert: _Insert) -> Sent:
        """Write rows and ids in the open transaction, but for the ``known`` keys."""


class Optimistic(Remembered):
    """Inserts the ids last."""

    def _send(self, outbox: OutboxTable, keys: Sequence[str], known: set[str], insert: _Insert) -> Sent:
        seen = self._seen = outbox.seen(keys) | known
        fail_points.step(fail_points.IDS_CHECKED)
        sent = insert(seen)
        fail_points.step(fail_points.ROWS_INSERTED)
        outbox.add(each for each in keys if each not in seen)
        fail_points.step(fail_points.IDS_INSERTED)
        return sent


class Pessimistic(Remembered):
    """Inserts the ids first, so that a twin waits."""

    def _send(self, outbox: OutboxTable, keys: Sequence[str], known: set[str], insert: _Insert) -> Sent:
        seen = self._seen = set(keys) - outbox.add_new(each for each in keys if each not in known)
        fail_points.step(fail_points.IDS_INSERTED)
        sent = insert(seen)
        fail_points.step(fail_points.ROWS_INSERTED)
        return sent


def inserted(routes: Routes, connection: Connection, chunk: Composed, placed: Sequence[Placed]) -> Sent:
    """Insert the messages of a chunk into their tables, in the open transaction.

    :raises RolledBack: tables refuse some of them.
    """
    why = [each for to, positions in placed for each in routes.insert(connection, to, chunk, positions)]
    if why:
        raise RolledBack(why)
    sent = chunk.counted(positions for _, positions in placed)
    for to, rows in acknowledged(routes, chunk, placed):
        Inserter(connection, to.table, to.columns).insert(rows)
        sent += Sent(acknowledged=rows.num_rows)
    return sent


def acknowledged(routes: Routes, chunk: Composed, placed: Sequence[Placed]) -> list[Rows]:
    """The acknowledgements (:data:`OUTGOING`) of the messages that are sent, by the queue that they go to."""
    if routes.received_elsewhere:
        return []
    now = datetime.now(UTC)
    asked = chunk.acknowledged(at for _, positions in placed for at in positions)
    return [
        (routes.find(address), acknowledgements([chunk.owed[at].id for at in its], now))
        for address, its in asked.items()
    ]
