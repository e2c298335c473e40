"""A queue of several that fails is set aside for a while, and the batch is made without it.

A stream over one queue sets none aside: it ends with the error.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlqueue_spark import plain_text
from sqlqueue_spark.errors import LockTimeout, RowsHeld, SqlQueueError, TryAgain
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession

log = plain_text.logger(__name__)

#: How long a batch does without a queue that has failed.
LATER_SECONDS = 5.0


class QueueFails(Exception):
    """Something is wrong with one queue, and not with the others."""

    def __init__(self, name: str, cause: SqlQueueError) -> None:
        super().__init__(str(cause))
        self.name = name
        self.cause = cause


def of_one_queue(session: QueueSession, error: SqlQueueError) -> bool:
    """Whether an error leaves other queues of the stream usable."""
    of_all = isinstance(error, TryAgain) and not isinstance(error, LockTimeout | RowsHeld)
    return session.several and not of_all


@contextmanager
def setting_aside(session: QueueSession, name: str) -> Iterator[None]:
    """Within the block an error of one queue is a :class:`QueueFails`, if the stream has other queues."""
    try:
        yield
    except SqlQueueError as error:
        if not of_one_queue(session, error):
            raise
        raise QueueFails(name, error) from error


class SetAside:
    """What was wrong with a queue when it was last looked at, and until when it is set aside."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.failure: SqlQueueError | None = None
        #: By the clock.
        self.until = 0.0

    def fails(self, error: SqlQueueError, now: float) -> None:
        """Do without the queue for a while."""
        if type(self.failure) is not type(error):
            log.warning("queue_set_aside queue=%s: %s The others go on; it is tried again every %.0f s",
                        self._name, error, LATER_SECONDS)  # fmt: skip
        self.failure, self.until = error, now + LATER_SECONDS

    def works(self) -> None:
        if self.failure is not None:
            log.warning("queue_works_again queue=%s", self._name)
            self.failure = None
