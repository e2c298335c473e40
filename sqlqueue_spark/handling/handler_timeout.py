"""How long a call of a handler may take (``handlerTimeout``): an alarm ends a call that takes longer.

A call that hears no alarm is ended by killing its process, after a grace.
"""

import contextlib
import ctypes
import math
import signal
import threading
import time
from collections.abc import Iterator

from sqlqueue_spark.errors import HandlerTimeout

#: The seconds after which the alarm rings again, where a function has swallowed it.
_AGAIN_SECONDS = 1.0


class Watch:
    """Ends calls that take too long, and shows a parent process which message is handled, and until when.

    An alarm ends Python code and calls into the system. Only another process can end a loop in the C code of
    a library. An alarm reaches the main thread only, on which Spark's workers call handlers.
    """

    def __init__(self, timeout: float, seen: "Seen | None" = None) -> None:
        """:param seen: what the parent process sees."""
        self.seen = seen or Seen()
        self._timeout = timeout
        self._until = math.inf
        self._hears = False

    @contextlib.contextmanager
    def alarms(self) -> Iterator[None]:
        """In this block, calls that take too long are ended. A call is a block of the watch itself."""
        self._hears = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        if not self._hears:
            yield
            return
        before = signal.getsignal(signal.SIGALRM)
        try:
            self.listen()
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def listen(self) -> None:
        """Set the alarm. Call it again now and then, because a handler may have set an alarm, too."""
        if self._hears:
            signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self._timeout)

    def __enter__(self) -> None:
        self._until = self.seen.until = time.monotonic() + self._timeout

    def __exit__(self, *_: object) -> None:
        """No call is made now; calling again is harmless."""
        self._until = math.inf

    def _ring(self, _: int, __: object) -> None:
        """End a late call. One alarm serves many calls: to set it takes as long as a quick handler."""
        left = self._until - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS if left <= 0 else min(left, self._timeout))
        if left <= 0:
            raise HandlerTimeout("The handler took longer than handlerTimeout.")


class Seen(ctypes.Structure):
    """A few bytes that a child process shares with its parent.

    ``position`` is that of the message that was begun last. ``until`` is when the step under way should be
    done, by the clock that all processes share.
    """

    _fields_ = [("position", ctypes.c_int64), ("until", ctypes.c_double)]
    position: int
    until: float
    #: The position while no message was begun.
    NOTHING = -1

    def is_overdue(self, grace: float) -> bool:
        """Whether the step under way has lasted this many seconds longer than it may."""
        return time.monotonic() > self.until + grace
