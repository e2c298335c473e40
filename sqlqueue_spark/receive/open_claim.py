"""The rows of one micro-batch, held in one open transaction until Spark proves the batch is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from sqlqueue_spark import fail_points, plain_text
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, ConnectionLost, SqlQueueError, TooMuch
from sqlqueue_spark.options import ATOMIC, RECEIVE_ONLY
from sqlqueue_spark.receive.claim import (
    Claimed,
    Elsewhere,
    Limits,
    Portion,
    claim,
    nothing_in_transit,
)
from sqlqueue_spark.receive.in_transit import Forwarder
from sqlqueue_spark.receive.offset import Offset, next_serial
from sqlqueue_spark.receive.part import Part
from sqlqueue_spark.receive.queue_session import Session
from sqlqueue_spark.receive.replay import Wanted
from sqlqueue_spark.receive.scan_positions import Head
from sqlqueue_spark.row_set import HIGHEST
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)


#: The most witnesses of the rows of one queue.
MOST_WITNESSES = 32


class Settling(Enum):
    """What settles a batch that Spark has logged."""

    ITS_CLAIM = auto()
    #: Its claim was lost, and what was left of it was locked again.
    A_SECOND_CLAIM = auto()
    #: The process that claimed it has ended.
    THE_NEXT_PROCESS = auto()


@dataclass
class OpenClaim:
    """A claim, and the session whose open transaction holds its rows.

    ``start`` and ``end`` are the offsets between which the batch lies, as Spark knows them. ``parts`` are the rows that are
    locked, of each queue. ``full`` says that a limit ended the claim, not the end of a queue.
    """

    session: Session
    start: Offset | None
    end: Offset
    parts: Sequence[Part]
    full: bool = False
    #: The transaction is gone, and every lock with it.
    lost: bool = False
    settling: Settling = Settling.ITS_CLAIM
    #: How many rows of a lost claim were not there any more when it was locked again.
    gone: int = 0

    @property
    def count(self) -> int:
        """How many rows are locked, with the expired ones."""
        return sum(part.rows.rows for part in self.parts)

    @property
    def live(self) -> int:
        """How many of them are to be emitted."""
        return sum(len(part.rows.live) for part in self.parts)

    @property
    def rows(self) -> Claimed:
        """The rows of a claim of one queue."""
        (only,) = self.parts
        return only.rows

    @property
    def last(self) -> int:
        """The highest RowVersion of a claim of one queue."""
        (only,) = self.parts
        return only.last

    def wanted(self) -> list[Wanted]:
        """What is to be locked again when the transaction is lost."""
        parts = {part.queue.name: part.rows for part in self.parts}
        return [
            Wanted(offset=each, live=parts[each.queue].live, expired=parts[each.queue].expired)
            for each in self.end.parts
            if each.queue in parts
        ]

    def mark(self, head: Head) -> None:
        """Tell ``head`` which rows of one queue were claimed."""
        (only,) = self.parts
        only.mark(head)

    def follow(self, start: Offset | None) -> None:
        """Become the batch after ``start``, whichever batch the claim was made after."""
        self.start, self.end = start, self.end.after(start)

    def follows(self, start: Offset | None) -> bool:
        """Whether this is the batch that was claimed after ``start``, and still is."""
        return start == self.start and not self.lost and self.settling is not Settling.THE_NEXT_PROCESS

    def delete(self) -> None:
        """Delete the rows of a claim that was just made, in its open transaction, where readers still see them.

        :raises ClaimLost: rows that were locked are gone; the claim is released, and nothing is deleted.
        """
        try:
            for part in self.parts:
                if part.queue.table.row_versions:
                    part.delete()
                    part.deleted = True
        except ClaimLost:
            self.release()
            raise

    def settle(self, send: Callable[[], None]) -> None:
        """Delete the rows, send what the batch has staged, and commit.

        Spark has logged the batch, so its rows are not given back for a passing reason. An attempt that fails is undone to a
        savepoint, and tried again for ``commandTimeout``.

        :param send: sends in the open transaction. It may be called again after its work was undone.
        :raises ConnectionLost: the transaction is gone. Any other error leaves it open, and the rows locked.
        """
        own = self.settling is Settling.ITS_CLAIM
        if own:
            fail_points.step(fail_points.COMMIT_LOGGED)
        connection, queue = self.session.connection, self.session.name
        told = False

        def attempt() -> None:
            with connection.attempt():
                for part in self.parts:
                    part.delete()
                send()
                fail_points.step(fail_points.DELETED if own else fail_points.LEFT_DELETED)

        def tell(error: SqlQueueError) -> None:
            nonlocal told
            if not told and may_go_away(error):
                log.warning(
                    "settling_waits queue=%s rows=%d: they stay locked meanwhile; %s",
                    queue,
                    self.count,
                    error,
                )
            told = True

        seconds = connection.target.command_timeout.total_seconds()
        patience = Retry(f"settling a batch of {queue}", seconds=seconds)
        patience.retried(attempt, may_go_away, on_failure=tell, kind=SqlQueueError)
        try:
            connection.commit()
        except SqlQueueError as error:  # whatever it was, the transaction has ended
            raise ConnectionLost(f"A batch of {queue} could not be committed: {error}") from error
        fail_points.step(fail_points.COMMITTED if own else fail_points.LEFT_COMMITTED)

    def locked_again(self, session: Session, parts: Sequence[Part]) -> OpenClaim:
        """The same logged batch after its own transaction was lost: the transaction of ``session`` now holds ``parts``."""
        ours = self.settling is Settling.ITS_CLAIM
        return replace(
            self,
            session=session,
            parts=parts,
            lost=False,
            settling=Settling.A_SECOND_CLAIM if ours else self.settling,
            gone=self.gone + self.count - sum(part.rows.rows for part in parts),
        )

    def say_settled(self) -> None:
        """Log what became of a batch that its own claim did not settle."""
        name, rows = self.session.name, self.count
        if self.settling is Settling.A_SECOND_CLAIM:
            log.warning("settled_after_loss queue=%s deleted=%d gone=%d: rows that are gone were deleted by our own lost "
                        "commit, or taken by another consumer and are processed twice", name, rows, self.gone)  # fmt: skip
        elif self.settling is Settling.THE_NEXT_PROCESS and rows:
            log.warning("recovered queue=%s deleted=%d: rows of the last logged batch that a stopped process had processed "
                        "but not deleted", name, rows)  # fmt: skip

    def release(self) -> None:
        """Give the rows back to everybody. Never raises."""
        self.lost = True
        self.session.connection.close()


def may_go_away(error: SqlQueueError) -> bool:
    """Whether the error that keeps a batch from being settled may go away while the transaction stays open.

    A :class:`ConfigurationError` whose first cause is no driver's error does not: we refuse the batch ourselves.
    """
    first: BaseException = error
    while first.__cause__ is not None:
        first = first.__cause__
    ours = isinstance(error, ConfigurationError) and isinstance(first, SqlQueueError)
    return not (ours or isinstance(error, (ConnectionLost, ClaimLost)))


def hold(
    queue: Queue,
    start: Offset | None,
    after: int,
    up_to: int,
    limits: Limits,
    *,
    portion: Portion | None = None,
    most_locked: int = HIGHEST,
    stage: str = "",
    forwarder: Forwarder | None = None,
) -> OpenClaim | None:
    """Claim the next rows; None when there are none, and then no transaction is left open.

    If all rows of a claim have expired, they are deleted at once, without a batch, and the next rows are claimed.

    :param portion: the most rows that the server can bear; it learns from a claim that was too large.
    :param most_locked: most rows where one-row receivers have to step over each of them, if there is a limit at all.
    :param stage: the stage, on which what the batch sends waits until it is settled; empty where there is none.
    :param forwarder: moves on the messages in transit that the claim meets.
    """
    limits = bearable(queue, limits, most_locked)
    portion = portion or Portion()
    limits = replace(limits, rows=min(limits.rows, portion.rows))
    try:
        held = _hold(queue, start, after, up_to, limits, stage=stage, forwarder=forwarder)
    except TooMuch as error:
        portion.too_large(limits.rows)
        log.warning("claim_too_large queue=%s next=%d: %s", queue.table.name, portion.rows, error)
        raise
    if held is not None:
        portion.borne()
    return held


def bearable(queue: Queue, limits: Limits, most_locked: int) -> Limits:
    """The limits of a claim beside one-row receivers, where they have to step over each row that is locked."""
    if queue.table.row_versions or limits.rows == HIGHEST:
        return limits
    locks_a_row = 2 if queue.table.keeps_skipped else 1  # a heap's row and its index key
    return replace(limits, rows=min(limits.rows, max(1, most_locked // locks_a_row)))


def _hold(
    queue: Queue,
    start: Offset | None,
    after: int,
    up_to: int,
    limits: Limits,
    *,
    stage: str,
    forwarder: Forwarder | None,
) -> OpenClaim | None:
    def claim_now(elsewhere: Elsewhere = nothing_in_transit) -> Claimed:
        return claim(queue, after, up_to, limits, elsewhere)

    while True:
        claimed = claim_now() if forwarder is None else forwarder.find(queue, claim_now)
        if claimed.live:
            break
        if not claimed.expired:
            queue.connection.rollback()
            return None
        queue.delete(claimed.expired)
        queue.connection.commit()
        log.info("expired queue=%s deleted=%d", queue.table.name, len(claimed.expired))
    end = Offset(
        queue=queue.table.name,
        identity=queue.identity() or "",
        live=claimed.live,
        expired=claimed.expired,
        witnesses=queue.ids(claimed.live.spread(MOST_WITNESSES)),
        mode=ATOMIC if stage else RECEIVE_ONLY,
        serial=next_serial(start),
        stage=stage,
    )
    log.info("claimed queue=%s rows=%d expired=%d bytes=%d first=%d last=%d", queue.table.name, len(claimed.live),
             len(claimed.expired), claimed.bytes, claimed.live.first, claimed.live.last)  # fmt: skip
    # A claim ahead would make others step over twice as many rows.
    alone = queue.table.row_versions or not claimed.stepped_over
    held = OpenClaim(queue, start, end, [Part(queue, claimed, end.witnesses)], full=claimed.full and alone)
    held.delete()
    return held
