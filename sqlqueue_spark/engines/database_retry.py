"""How long we wait for a database that gives way, and when the log says so."""

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

import stamina

from sqlqueue_spark.errors import ConnectionLost, SqlQueueError, TryAgain
from sqlqueue_spark.plain_text import logger

log = logger(__name__)

T = TypeVar("T")
E = TypeVar("E", bound=SqlQueueError)

#: A database that is restarted or fails over must be back within this time, or the caller fails.
RETRY_SECONDS = 60.0
#: After this time without success the log says so. The .NET transport's circuit breaker waits as long.
BREAKER_SECONDS = 30.0
#: The first and the longest pause in seconds. Pauses double, with up to ``JITTER`` seconds by chance.
FIRST_PAUSE, LONGEST_PAUSE, JITTER = 0.05, 5.0, 1.0
#: The longest time between two looks whether to stop.
_LOOK_SECONDS = 0.2
#: Whether a step of ours is just being repeated.
_RETRYING = ContextVar("retrying", default=False)

# Of our steps stamina would warn at each pause, several times a second and without a reason.
logging.getLogger("stamina").addFilter(lambda _: not _RETRYING.get())


class Retry:
    """Repeats steps when a database gives way, with pauses that grow and vary, within a time limit."""

    def __init__(
        self, what: str, clock: Callable[[], float] = time.monotonic, *, seconds: float | None = None
    ) -> None:
        """:param what: what the steps are for; the log says it.
        :param seconds: for how long a step is repeated.
        """
        self._what = what
        self._clock = clock
        self._seconds = RETRY_SECONDS if seconds is None else seconds
        self._failing_since: float | None = None
        self._told = False

    def retried(
        self,
        action: Callable[[], T],
        worth_it: Callable[[E], bool] = lambda _: True,
        *,
        on_failure: Callable[[E], object] = lambda _: None,
        kind: type[E] = TryAgain,  # type: ignore[assignment] # mypy knows no default of a type variable
    ) -> T:
        """Run a step, and repeat it while that is worth it. The step's last error is raised.

        :param on_failure: what to do after each failure, before the pause.
        :param kind: the errors after which to repeat.
        """
        before, since = _RETRYING.set(True), self._clock()

        def again(error: Exception) -> bool:
            return isinstance(error, kind) and worth_it(error) and self._clock() - since < self._seconds

        try:
            for attempt in stamina.retry_context(
                on=again,
                attempts=None,
                timeout=None,
                wait_initial=FIRST_PAUSE,
                wait_max=LONGEST_PAUSE,
                wait_jitter=JITTER,
            ):
                with attempt:
                    try:
                        done = action()
                    except kind as error:
                        if attempt.num == 1 and isinstance(error, ConnectionLost):
                            since = self._clock()  # a server that vanished without a word is noticed late
                        self._failed(error)
                        on_failure(error)
                        raise
                    self._succeeded()
                    return done
        finally:
            _RETRYING.reset(before)
        raise AssertionError("unreachable: retry_context ends by return or raise")

    def _failed(self, error: SqlQueueError) -> None:
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= BREAKER_SECONDS and not self._told:
            self._told = True
            log.error(
                "still_failing %s seconds=%d: nothing has succeeded for so long; check that the server runs "
                "and can be reached from here, whether it fails over or is throttled, and who holds locks; "
                "last said: %s",
                self._what,
                now - self._failing_since,
                error,
            )

    def _succeeded(self) -> None:
        if self._told:
            log.warning("works_again %s", self._what)
        self._failing_since, self._told = None, False


def paused(seconds: float, is_asked: Callable[[], bool]) -> bool:
    """Wait, but no longer than until the program is asked to stop; returns whether it is."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not is_asked():
        time.sleep(min(left, _LOOK_SECONDS))
    return is_asked()
