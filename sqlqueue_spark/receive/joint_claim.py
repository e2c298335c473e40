"""One claim over several queues: all its rows are held in one open transaction, and settled in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlqueue_spark import plain_text
from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.errors import ConfigurationError, LockTimeout, QueueError, TooMuch
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ATOMIC, RECEIVE_ONLY, SourceOptions
from sqlqueue_spark.receive.claim import Limits, Portion, claim_again, claim_once
from sqlqueue_spark.receive.found import Find
from sqlqueue_spark.receive.in_transit import Forwarder, MovedOn
from sqlqueue_spark.receive.joint_batch import Gathering, QueueFails
from sqlqueue_spark.receive.joint_session import JointSession
from sqlqueue_spark.receive.offset import JointOffset, Offset, next_serial
from sqlqueue_spark.receive.open_claim import MOST_WITNESSES, OpenClaim, bearable
from sqlqueue_spark.receive.part import Part
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)

#: The witnesses of all queues of a batch together. Each has some: without any its rows could not be locked again.
_WITNESSES, _LEAST_WITNESSES = 64, 4


@dataclass
class _Met:
    """The messages in transit that a claim has met: in which queue, which rows, and who moves them on."""

    rows: list[tuple[Forwarder, Queue, Sequence[int]]] = field(default_factory=list)
    #: Those that cannot be moved on, by queue: they are rows of the batch like any other.
    stay: dict[str, set[int]] = field(default_factory=dict)


class JointClaims(Gathering[Part, OpenClaim]):
    """Claims the shares of several queues in one transaction.

    What a claim of one queue does by ending its transaction, this one does for all queues at once: it gives back what it holds,
    and claims anew.
    """

    def __init__(
        self, options: SourceOptions, stage: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """:param stage: the stage, on which what the batch sends waits until it is settled; empty where there is none."""
        self._options = options
        self._stage = stage
        self._clock = clock
        self._portion = Portion()
        self.moved_on = MovedOn()
        #: What is met by the claims that are being made; a claim ahead may be made beside another.
        self._met: dict[Connection, _Met] = {}

    @property
    def most_rows(self) -> int:
        return self._portion.rows

    def too_large(self, rows: int, error: TooMuch) -> None:
        self._portion.too_large(rows)
        log.warning("claim_too_large queue=%s next=%d: %s", self._options.title, self._portion.rows, error)

    def find(self, table: Table) -> Find[Part]:  # noqa: ARG002 -- all are claimed alike
        forwarder = Forwarder(self._options, self._clock, self.moved_on)

        def find(queue: Queue, _: Offset | None, after: int, up_to: int, limits: Limits) -> Part | None:
            met = self._met[queue.connection]
            stay = met.stay.get(queue.name, set())

            def elsewhere(same: Queue, rows: Sequence[int]) -> set[int]:
                return set(forwarder.elsewhere(same, rows)) - stay

            limits = bearable(queue, limits, self._options.most_locked_rows)
            claimed = claim_once(queue, after, up_to, limits, elsewhere)
            if claimed.in_transit:
                met.rows.append((forwarder, queue, claimed.in_transit))
            # A claim ahead would make others step over twice as many rows.
            alone = queue.table.row_versions or not claimed.stepped_over
            return Part(queue, claimed, full=claimed.full and alone) if claimed.rows else None

        return find

    def gather(
        self, session: JointSession, start: Offset | None, turn: Callable[[], list[Part]]
    ) -> OpenClaim | None:
        met = self._met[session.connection] = _Met()
        moved = False
        try:
            while True:
                parts = turn()
                if not moved and (due := [each for each in met.rows if each[0].due]):
                    session.connection.rollback()
                    moved = True
                    self._move(due, met)
                    continue
                parts = _beside_others(session, parts)
                if any(part.rows.live for part in parts):
                    break
                if not parts:
                    session.rollback()
                    return None
                _delete_expired(session, parts)
        finally:
            del self._met[session.connection]
        held = self._held(session, start, parts)
        self._portion.borne()
        return held

    def _move(self, rows: Sequence[tuple[Forwarder, Queue, Sequence[int]]], met: _Met) -> None:
        """Move on what is in transit, in transactions of its own. Where a queue is in the way, the next turn will see it."""
        for forwarder, queue, row_versions in rows:
            try:
                stay = forwarder.move(queue, row_versions)
            except (QueueError, ConfigurationError, LockTimeout) as error:
                log.warning("not_forwarded queue=%s rows=%d: %s", queue.name, len(row_versions), error)
                continue
            met.stay.setdefault(queue.name, set()).update(stay)

    def _held(self, session: JointSession, start: Offset | None, parts: Sequence[Part]) -> OpenClaim:
        most = min(MOST_WITNESSES, max(_LEAST_WITNESSES, _WITNESSES // len(parts)))
        offsets = []
        for part in parts:
            rows = part.rows.live if len(part.rows.live) else part.rows.expired
            try:
                part.witnesses = part.queue.ids(rows.spread(most))
            except QueueError as error:  # a row without an Id is its queue's own affair
                raise QueueFails(part.name, error) from error
            offsets.append(
                Offset(
                    queue=part.name,
                    identity=part.queue.identity() or "",
                    live=part.rows.live,
                    expired=part.rows.expired,
                    witnesses=part.witnesses,
                )
            )
        mode = ATOMIC if self._stage else RECEIVE_ONLY
        end = JointOffset(offsets, mode=mode, serial=next_serial(start), stage=self._stage)
        held = OpenClaim(session, start, end, parts, full=any(part.full for part in parts))
        session.connection.hurry(None)
        log.info("claimed queues=%d rows=%d expired=%d bytes=%d", len(parts), held.live, held.count - held.live,
                 sum(part.rows.bytes for part in parts))  # fmt: skip
        held.delete()
        return held


def _beside_others(session: JointSession, parts: list[Part]) -> list[Part]:
    """The same claim, without the index keys of others' rows, which it may have kept on a heap: see :func:`claim`."""
    while any(part.rows.stepped_over and part.queue.table.keeps_skipped for part in parts):
        session.connection.rollback()
        again = [_again(part) for part in parts]
        if [part.rows.rows for part in again] == [part.rows.rows for part in parts]:
            return again
        parts = [part for part in again if part.rows.rows]
    return parts


def _again(part: Part) -> Part:
    claimed = claim_again(part.queue, part.rows, Limits(rows=part.rows.rows, bytes=part.rows.bytes))
    return Part(part.queue, claimed, full=part.full)


def _delete_expired(session: JointSession, parts: Sequence[Part]) -> None:
    for part in parts:
        part.queue.delete(part.rows.expired)
    session.connection.commit()
    for part in parts:
        log.info("expired queue=%s deleted=%d", part.name, len(part.rows.expired))
