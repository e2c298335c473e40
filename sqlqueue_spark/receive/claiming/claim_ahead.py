"""Claims the next batch while Spark works on the present one: the time of the claim hides behind the read.

A claim ahead is made only where a limit ended the present claim, so that a backlog is likely to wait. It
begins above the present claim's last row. So two claims of one stream never want the same row, even when the
first one's connection is lost.
"""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future

from sqlqueue_spark import plain_text
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.receive.claiming.next_batch import NextBatch
from sqlqueue_spark.row_set import HIGHEST

log = plain_text.logger(__name__)

#: A claim ahead that Spark does not ask for within this time is given back: a trigger may be an hour away.
UNASKED_SECONDS = 10.0
#: The same where a program tells when a batch is done: until it does, Spark may well ask for the claim.
UNTOLD_SECONDS = 60.0
#: The same once the present batch is known to be done.
IDLE_SECONDS = 2.0

#: Whether this number of rows is enough by now.
Enough = Callable[[int], bool]


class ClaimAhead:
    """One claim that another thread makes. The first call to take it or to give it up has it."""

    def __init__(
        self, claim: Callable[[Enough], NextBatch | None], queue: str, *, told: bool = False
    ) -> None:
        """:param claim: makes the claim. It ends sooner once it is given up, or asked for and large enough.
        :param queue: what is received from, for the log.
        :param told: whether a program tells when a batch is done.
        """
        self._queue = queue
        self._unasked_seconds = UNTOLD_SECONDS if told else UNASKED_SECONDS
        self._made: Future[NextBatch | None] = Future()
        #: How many rows are enough; only a limit ends the claim until it is asked for.
        self._enough = HIGHEST
        #: Whether its rows are free again, or will be.
        self.given_up = False
        #: Locked for good by the first to take the claim.
        self._taken = threading.Lock()
        self._timer: threading.Timer | None = None
        # A daemon, so that a program can end meanwhile. The threads of an executor are waited for.
        threading.Thread(target=self._make, args=(claim,), name="sqlqueue-claim-ahead", daemon=True).start()

    def ask(self, rows: int) -> None:
        """Let the claim end as soon as it has this number of rows."""
        self._enough = rows

    def take(self) -> NextBatch | None:
        """Wait until the claim is made. None: there was no row, or it failed, or it was given back."""
        made = self._made.result()
        if self._timer is not None:
            self._timer.cancel()
        return made if self._taken.acquire(blocking=False) else None

    def give_up(self, because: str = "") -> None:
        """Release the claim, now or as soon as it is made."""
        self.given_up = True
        self._made.add_done_callback(lambda _: self.give_back(because, at_once=False))

    def made(self) -> NextBatch | None:
        """Wait until the claim is made, and leave it here; None as in :meth:`take`."""
        made = self._made.result()
        return None if self._taken.locked() else made

    def give_back(self, because: str, *, at_once: bool = True) -> None:
        """Release the claim, when it is made.

        :param at_once: when this returns, others can have its rows. Else closing the connection frees them.
        """
        self.given_up = True
        if (held := self.take()) is not None:
            if at_once and held.session is not None:
                with contextlib.suppress(SqlQueueError):  # the connection is closed in any case
                    held.session.connection.rollback()
            held.release()
            if because:
                log.info("claim_ahead_given_back queue=%s: %s", self._queue, because)

    def give_up_within(self, seconds: float) -> None:
        """Release the claim unless it is asked for within ``seconds``. A later call replaces this one."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, lambda: self.give_up("no trigger asked for it"))
        self._timer.name, self._timer.daemon = "sqlqueue-claim-unasked", True
        self._timer.start()

    def _make(self, claim: Callable[[Enough], NextBatch | None]) -> None:
        held = None
        try:
            held = claim(lambda rows: self.given_up or rows >= self._enough)
            if held is not None and self._timer is None:
                self.give_up_within(self._unasked_seconds)
        except SqlQueueError as error:
            log.info("claim_ahead_failed queue=%s: %s", self._queue, error)
        finally:
            self._made.set_result(held)  # if it was given up meanwhile, this releases it
