"""One claim: the rows of every queue of a batch are locked in one open transaction, and settled in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlqueue_spark import plain_text
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import SqlQueueError, TooMuch
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits
from sqlqueue_spark.receive.claiming.claim import QueueRows, claim, claim_again
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.next_batch import BatchMaker, NextBatch
from sqlqueue_spark.receive.claiming.set_aside import of_one_queue, setting_aside
from sqlqueue_spark.receive.offset import Offset, batch_offset
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)

#: The most witnesses of the rows of one queue.
_MOST_WITNESSES = 32
#: The witnesses of all queues of a batch. Each has some: without any its rows could not be locked again.
_WITNESSES, _LEAST_WITNESSES = 64, 4


@dataclass
class _Making:
    """What a claim has met while it is being made."""

    #: The messages in transit of the present turn: in which queue, which rows, and their bytes.
    in_transit: list[tuple[Queue, Mapping[int, int]]] = field(default_factory=list)
    #: Messages in transit that cannot be moved on, by queue: they are rows of the batch like any other.
    stay: dict[str, set[int]] = field(default_factory=dict)
    #: The rows that the present turn has locked, and the most that it has asked for.
    locked: int = 0
    asked: int = 0


class Claims(BatchMaker):
    """Claims rows of each queue in one transaction.

    A step that must end the transaction ends it for all queues: all rows are given back and claimed anew.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        super().__init__(options, clock)
        #: A claim ahead may be made beside another claim, on another connection.
        self._making: dict[Connection, _Making] = {}

    def find(self, queue: Queue, after: int, up_to: int, limits: BatchLimits) -> QueueRows | None:
        making = self._making[queue.connection]
        elsewhere = self.forwarder.elsewhere_but(making.stay.get(queue.name, set()))
        if self._options.max_messages_per_trigger is None:
            limits = limits.beside_receivers(queue.table)
        making.asked = making.locked + limits.rows
        claimed = claim(queue, after, up_to, limits, elsewhere)
        making.locked += claimed.count
        if claimed.in_transit:
            making.in_transit.append((queue, claimed.in_transit))
        # A claim ahead would make others step over twice as many rows.
        claimed.full &= queue.table.row_versions or not claimed.stepped_over
        return claimed if claimed.count else None

    def make(
        self, session: QueueSession, start: Offset | None, turn: Callable[..., list[QueueRows]]
    ) -> NextBatch | None:
        """A claim of what a turn finds. Where all rows have expired, it deletes them and goes on."""
        making = self._making[session.connection] = _Making()
        try:
            while parts := self._locked(session, making, turn):
                if any(part.live for part in parts):
                    return self._held(session, start, parts)
                for part in parts:
                    with setting_aside(session, part.name):
                        part.delete()
                session.connection.commit()
                for part in parts:
                    log.info("expired queue=%s deleted=%d", part.name, len(part.expired))
        except TooMuch as error:
            if making.asked:
                self.bearable.too_large(making.asked)
                log.warning("claim_too_large queue=%s next=%d: %s", session.name, self.bearable.rows, error)
            raise
        finally:
            del self._making[session.connection]
        return None

    def _locked(
        self, session: QueueSession, making: _Making, turn: Callable[..., list[QueueRows]]
    ) -> Sequence[QueueRows]:
        """What a turn finds, when the messages in transit that it meets have been moved on."""
        making.in_transit, making.locked = [], 0
        parts = turn()
        while due := [each for each in making.in_transit if self.forwarder.due(each[0])]:
            session.connection.rollback()
            for queue, sizes in due:  # in transactions of their own
                try:
                    stay = self.forwarder.move(queue, sizes)
                except SqlQueueError as error:
                    if not of_one_queue(session, error):
                        raise
                    # The next turn sees a queue that fails.
                    log.warning("not_forwarded queue=%s rows=%d: %s", queue.name, len(sizes), error)
                    continue
                making.stay.setdefault(queue.name, set()).update(stay)
            making.in_transit, making.locked = [], 0
            parts = turn(again=True)
            if parts or not any(self.forwarder.goes_on(queue) for queue, _ in due):
                break
        return without_keys_of_others(session, parts)

    def _held(self, session: QueueSession, start: Offset | None, parts: Sequence[QueueRows]) -> NextBatch:
        most = min(_MOST_WITNESSES, max(_LEAST_WITNESSES, _WITNESSES // len(parts)))
        offsets = []
        for part in parts:
            rows = part.live if len(part.live) else part.expired
            with setting_aside(session, part.name):
                identity = part.queue.identity() or ""
                part.witnesses = part.queue.ids(rows.spread(most))
            offsets.append(part.offset(identity))
        session.patient()
        _say_claimed(session, parts)
        for part in parts:
            if part.queue.table.row_versions:  # readers still see the rows
                with setting_aside(session, part.name):
                    part.delete()
                part.deleted = True
        return NextBatch(start, batch_offset(start, offsets, self._options), parts, session)


def without_keys_of_others(session: QueueSession, parts: list[QueueRows]) -> list[QueueRows]:
    """The same claim without index keys of others' rows, kept on a heap: see :func:`claim_again`."""
    while any(part.stepped_over and part.queue.table.keeps_skipped for part in parts):
        session.connection.rollback()
        again = [claim_again(part) for part in parts]
        if [part.count for part in again] == [part.count for part in parts]:
            return again
        parts = [part for part in again if part.count]
    return parts


def _say_claimed(session: QueueSession, parts: Sequence[QueueRows]) -> None:
    live, expired = sum(len(part.live) for part in parts), sum(len(part.expired) for part in parts)
    size = sum(part.bytes for part in parts)
    if session.several:
        log.info("claimed queues=%d rows=%d expired=%d bytes=%d", len(parts), live, expired, size)
    else:
        log.info("claimed queue=%s rows=%d expired=%d bytes=%d first=%d last=%d", parts[0].name, live,
                 expired, size, parts[0].live.first, parts[0].live.last)  # fmt: skip
