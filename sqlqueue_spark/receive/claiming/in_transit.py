"""Moves on messages in transit: delayed messages on their way through their sender's queue to another one.

A row in transit is not for this endpoint. The transport of a .NET endpoint moves it on before a handler sees
it. A stream does the same, in short transactions: these rows belong to no batch and stand in no offset. A
claim that finds some gives its rows back, lets them be moved, and claims again, once. Rows in transit that
appear in between are locked and not claimed, and are moved the next time.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from sqlqueue_spark import fail_points, plain_text
from sqlqueue_spark.errors import (
    ConfigurationError,
    LockTimeout,
    QueueError,
    RowsHeld,
    SqlQueueError,
    TryAgain,
)
from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.header_json import parse_headers, without_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.messages.transit import in_transit_to
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.claim import Elsewhere, QueueRows
from sqlqueue_spark.row_set import LOWEST, RowSet, portions
from sqlqueue_spark.tables import queue_table
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations
from sqlqueue_spark.tables.insert import insert_moved
from sqlqueue_spark.tables.queues import InTransit, Queue
from sqlqueue_spark.tables.refused_messages import refused

log = plain_text.logger(__name__)

#: Most rows and bytes that are moved in one transaction; a larger row is moved alone.
_CHUNK, _CHUNK_BYTES = 500, 16 << 20
#: After this time a move tries no further destination: the other rows of the queue wait for it.
_TOGETHER_SECONDS = 1.0
#: How long a move waits for a lock at a destination, and how long its rows then stay where they are.
_LOCKED_MS, _LATER_SECONDS = 500, 5.0


class Forwarder:
    """Finds the messages in transit of a stream, and moves them on."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        #: Until when the rows of a queue stay: a destination is locked.
        self._not_before: dict[str, float] = {}
        #: With which row the next move of a queue begins, where the last one has not tried all.
        self._next: dict[str, int] = {}
        #: How many rows were moved on, to their destinations or to the error queue.
        self.moved = 0

    def find(self, queue: Queue, look: Callable[[Elsewhere], QueueRows]) -> QueueRows:
        """What a look or a claim finds, when the messages in transit that it meets have been moved on.

        :param look: looks or claims; what it tells of as in transit, it leaves out. It may be called again.
        """
        claimed, stay = look(self.elsewhere), set[int]()
        while claimed.in_transit and self.due(queue):
            queue.connection.rollback()
            stay |= self.move(queue, claimed.in_transit)
            claimed = look(self.elsewhere_but(stay))
            if claimed.count or not self.goes_on(queue):
                break
        return claimed

    def goes_on(self, queue: Queue) -> bool:
        """Whether a move had no time for all rows. Those that it left go before the others the next time."""
        return queue.name in self._next

    def due(self, queue: Queue) -> bool:
        """Whether rows are moved on now; not while a destination is locked."""
        return self._clock() >= self._not_before.get(queue.name, 0.0)

    def elsewhere(self, queue: Queue, row_versions: Sequence[int]) -> Collection[int]:
        """Which of these rows are to go to another queue of this database.

        One on its way to another database is a row of the batch, which the sink passes on.
        """
        headers = queue.headers_of(row_versions)
        # Where names differ in the case of letters alone, the server is asked when they are moved.
        naming = replace(self._options.naming(queue.connection.dialect), ignores_case=False)
        return {
            row_version
            for row_version, (_, text) in headers.items()
            if (address := in_transit_to(parse_headers(text))) is not None
            and naming.way(address, queue.table.table, queue.table.database) in ("home", "nowhere")
        }

    def elsewhere_but(self, stay: Collection[int]) -> Elsewhere:
        """As :meth:`elsewhere`, without rows that cannot go there."""
        return lambda queue, row_versions: set(self.elsewhere(queue, row_versions)).difference(stay)

    def move(self, queue: Queue, sizes: Mapping[int, int]) -> set[int]:
        """Move rows of these sizes to their destinations, in transactions of their own.

        :returns: the rows that cannot go there and have no error queue to go to: they are rows of the batch
            like any other.
        """
        stay: set[int] = set()
        until, begin = self._clock() + _TOGETHER_SECONDS, self._next.pop(queue.name, LOWEST)
        rows = sorted(sizes, key=lambda row: (row < begin, row))
        for part in portions(rows, sizes.__getitem__, _CHUNK, _CHUNK_BYTES):
            if part[0] != rows[0] and self._clock() >= until:
                self._next.setdefault(queue.name, part[0])
                break
            try:
                with queue.connection.hasty(_LOCKED_MS):
                    stays, moved = self._move(queue, part, until)
                stay |= stays
                self.moved += moved
                fail_points.step(fail_points.TRANSIT_MOVED)
            except RowsHeld as error:
                self._wait(queue, error)
            except SqlQueueError:
                self._next.pop(queue.name, None)  # what fails is not tried again at once
                raise
        return stay

    def _move(self, queue: Queue, row_versions: Sequence[int], until: float) -> tuple[set[int], int]:
        """The rows that stay, as :meth:`move`, and how many have moved."""
        by_destination = self._locked(queue, row_versions)
        fail_points.step(fail_points.TRANSIT_LOCKED)
        moved: list[int] = []
        stay: set[int] = set()
        for tried, (address, its) in enumerate(by_destination.values()):
            if tried and self._clock() >= until:
                self._next[queue.name] = its[0].row_version
                break
            try:
                refusals = self._deliver(queue, address, its)
            except LockTimeout as error:  # another session holds this destination; the others go on
                self._wait(queue, error)
                continue
            left = set[int]()
            for part, why in refusals:
                refused_rows = [row.row_version for row in part]
                try:
                    if why is None or not self._fail(queue, address, part, why):
                        stay.update(refused_rows)
                except LockTimeout as error:  # another session holds the error queue
                    self._wait(queue, error)
                    left.update(refused_rows)
            moved += [row.row_version for row in its if row.row_version not in stay | left]
        fail_points.step(fail_points.TRANSIT_INSERTED)
        if moved:
            if (deleted := queue.delete(RowSet.of(set(moved)))) != len(moved):
                raise QueueError(
                    f"Deleting {len(moved)} rows in transit from {queue.table.name} deleted {deleted}, so "
                    "none was moved; a trigger keeps rows, or two have one RowVersion: mend the table."
                )
            fail_points.step(fail_points.TRANSIT_DELETED)
            log.info("forwarded queue=%s rows=%d", queue.table.name, len(moved))
        return stay, len(moved)

    def _locked(self, queue: Queue, row_versions: Sequence[int]) -> dict[str, tuple[str, list[InTransit]]]:
        """Locked rows by the table that they go to: how the first one spells its address, and all of them."""
        found: dict[str, tuple[str, list[InTransit]]] = {}
        naming = self._options.naming(queue.connection.dialect)
        place = {row: number for number, row in enumerate(row_versions)}
        for row in sorted(queue.lock_in_transit(row_versions), key=lambda row: place[row.row_version]):
            if (address := in_transit_to(parse_headers(row.headers))) is not None:
                meant, _ = naming.written(address)
                found.setdefault(meant, (address, []))[1].append(row)
        return found

    def _deliver(
        self, queue: Queue, address: str, rows: Sequence[InTransit]
    ) -> Sequence[tuple[Sequence[InTransit], SqlQueueError | None]]:
        """Insert rows at the address that their headers name.

        :returns: the rows that cannot go there, and why; None for a way that ends in the queue itself.
        """
        try:
            with queue.connection.attempt():  # of all: a part may have gone before another has to wait
                table = self._options.naming(queue.connection.dialect).table(address)
                if (found := queue_table.find_queue(queue.connection, table)) is None:
                    raise ConfigurationError(
                        f"There is no queue table {table}, to which the header {FORWARD_DESTINATION} of a "
                        "message names the way; create it, or take the message out of the queue."
                    )
                if found.address == queue.table.address:
                    return [(rows, None)]
                trusted = () if queue.guarded else (queue.table,)  # a pattern may have found a stranger's
                with AllowedDestinations(self._options, trusted).into(queue.connection, found):
                    return refused(
                        queue.connection,
                        lambda some: insert_moved(queue.connection, found, [*map(_forwarded, some)]),
                        rows,
                    )
        except SqlQueueError as error:
            if isinstance(error, TryAgain):
                raise
            return [(rows, error)]

    def _fail(self, queue: Queue, address: str, rows: Sequence[InTransit], error: SqlQueueError) -> bool:
        """Move undeliverable rows to the error queue; False where there is none, or it refuses them."""
        to, name = self._options.error_queue, queue.table.name
        if to is not None:
            naming = self._options.naming(queue.connection.dialect)
            try:
                with queue.connection.attempt():
                    if (found := queue_table.find_queue(queue.connection, naming.table(to))) is None:
                        raise ConfigurationError(f"There is no error queue {to!r}.")
                    failed = [_failed(row, address, naming, error) for row in rows]
                    insert_moved(queue.connection, found, failed)
                log.warning("not_forwarded queue=%s rows=%d error_queue=%s: %s", name, len(rows), to, error)
                return True
            except TryAgain:
                raise
            except SqlQueueError as refusal:
                error = refusal
        log.warning("not_forwarded queue=%s rows=%d first=%d: %s They are rows of the batch; to move them "
                    "elsewhere, set errorQueue.",
                    name, len(rows), rows[0].row_version, error)  # fmt: skip
        return False

    def _wait(self, queue: Queue, error: SqlQueueError) -> None:
        self._not_before[queue.name] = self._clock() + _LATER_SECONDS
        log.warning("forwarding_waits queue=%s: %s", queue.table.name, error)


def _forwarded(row: InTransit) -> InTransit:
    return row._replace(headers=without_headers(row.headers or "", {FORWARD_DESTINATION}))


def _failed(row: InTransit, address: str, naming: Naming, error: SqlQueueError) -> InTransit:
    """The row as it goes to the error queue. A retry sends it to the destination that it could not reach."""
    headers = failed_headers(row.headers, Failure.of(error), *naming.written(address), row_id=row.id)
    return row._replace(headers=headers, expires=None)
