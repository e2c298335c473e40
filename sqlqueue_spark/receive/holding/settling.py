"""The rows of one micro-batch, held in one open transaction until Spark proves the batch is done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from sqlqueue_spark import fail_points, plain_text
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, ConnectionLost, SqlQueueError, TryAgain
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.next_batch import NextBatch
from sqlqueue_spark.receive.offset import Offset

log = plain_text.logger(__name__)


class Settling(Enum):
    """What settles a batch that Spark has logged."""

    ITS_CLAIM = auto()
    #: Its claim was lost, and what was left of it was locked again.
    A_SECOND_CLAIM = auto()
    #: The process that claimed it has ended.
    THE_NEXT_PROCESS = auto()


@dataclass
class OpenClaim(NextBatch):
    """A batch that Spark knows. In mode ``none`` no session holds its rows: workers take them."""

    #: The transaction is gone, and every lock with it.
    lost: bool = False
    settling: Settling = Settling.ITS_CLAIM
    #: How many rows of a lost claim were not there any more when it was locked again.
    gone: int = 0

    def wanted(self) -> list[Offset]:
        """What is to be locked again when the transaction is lost."""
        parts = {part.name: part for part in self.parts}
        return [parts[each.queue].offset(each.identity) for each in self.end.parts if each.queue in parts]

    def settle(self, send: Callable[[QueueSession], int | None]) -> int | None:
        """Delete the rows, send what the batch has staged, and commit.

        Spark has logged the batch, so its rows are not given back for a passing reason. An attempt that fails
        is undone to a savepoint, and tried again for ``commandTimeout``. A second deadlock says that another
        session waits for the claim itself, which is given up then: it is locked again behind that session.

        :param send: sends in the open transaction. It may be called again after its work was undone.
        :returns: what ``send`` returned.
        :raises ConnectionLost: the transaction is gone. Any other error leaves it open, and the rows locked.
        """
        if (session := self.session) is None:
            return None
        if own := self.settling is Settling.ITS_CLAIM:
            fail_points.step(fail_points.COMMIT_LOGGED)
        connection, queue = session.connection, session.name
        told, deadlocks = False, 0

        def attempt() -> int | None:
            with connection.attempt():
                for part in self.parts:
                    part.delete()
                sent = send(session)
                fail_points.step(fail_points.DELETED if own else fail_points.LEFT_DELETED)
            return sent

        def tell(error: SqlQueueError) -> None:
            nonlocal told, deadlocks
            deadlocks += isinstance(error, TryAgain) and error.deadlock
            if deadlocks > 1:
                lost = ConnectionLost(str(error))
                lost.deadlock = True
                raise lost from error
            if not told and may_go_away(error):
                log.warning("settling_waits queue=%s rows=%d: they stay locked meanwhile; %s",
                            queue, self.count, error)  # fmt: skip
            told = True

        seconds = connection.target.command_timeout.total_seconds()
        patience = Retry(f"settling a batch of {queue}", seconds=seconds)
        sent = patience.retried(attempt, may_go_away, on_failure=tell, kind=SqlQueueError)
        try:
            connection.commit()
        except SqlQueueError as error:  # whatever it was, the transaction has ended
            raise ConnectionLost(f"A batch of {queue} could not be committed: {error}") from error
        fail_points.step(fail_points.COMMITTED if own else fail_points.LEFT_COMMITTED)
        return sent

    def locked_again(self, session: QueueSession, parts: Sequence[QueueRows]) -> "OpenClaim":
        """The same logged batch after its transaction was lost: that of ``session`` now holds ``parts``."""
        ours = self.settling is Settling.ITS_CLAIM
        return replace(
            self,
            session=session,
            parts=parts,
            lost=False,
            settling=Settling.A_SECOND_CLAIM if ours else self.settling,
            gone=self.gone + self.count - sum(part.count for part in parts),
        )

    def say_settled(self, name: str) -> None:
        """Log what became of a batch that its own claim did not settle."""
        rows = self.count
        if self.settling is Settling.A_SECOND_CLAIM:
            log.warning("settled_after_loss queue=%s deleted=%d gone=%d: rows that are gone were deleted by "
                        "our own lost commit, or taken by another consumer and are processed twice",
                        name, rows, self.gone)  # fmt: skip
        elif self.settling is Settling.THE_NEXT_PROCESS and rows:
            log.warning("recovered queue=%s deleted=%d: rows of the last logged batch that a stopped process "
                        "had processed but not deleted", name, rows)  # fmt: skip

    def release(self) -> None:
        self.lost = self.session is not None
        super().release()


def may_go_away(error: SqlQueueError) -> bool:
    """Whether the error that keeps a batch from being settled may go away while the transaction stays open.

    A :class:`ConfigurationError` whose first cause is no driver's error does not: we refuse the batch
    ourselves.
    """
    first: BaseException = error
    while first.__cause__ is not None:
        first = first.__cause__
    ours = isinstance(error, ConfigurationError) and isinstance(first, SqlQueueError)
    return not (ours or isinstance(error, (ConnectionLost, ClaimLost)))
