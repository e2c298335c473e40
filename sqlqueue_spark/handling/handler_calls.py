"""Calls a handler for a message, again at once when it fails; an alarm ends a call that takes too long.

A call that hears no alarm is ended by killing its process, after a grace.
"""

import contextlib
import ctypes
import functools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlqueue_spark.errors import HandlerTimeout, NoHandler, NoReplyAddress, WrongAnswer, WrongBody
from sqlqueue_spark.handling.answers import Answer, Outgoing, outgoing
from sqlqueue_spark.handling.received_message import ReceivedMessage
from sqlqueue_spark.handling.stack_trace import package_of
from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.transit import UNKNOWN

Function = Callable[[ReceivedMessage], object]

#: The seconds after which the alarm rings again, where a function has swallowed it.
_AGAIN_SECONDS = 1.0
#: To try again does not help.
_HOPELESS = (WrongBody, WrongAnswer, NoHandler, NoReplyAddress)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How often and how long a handler is called for a message.

    :param immediate_retries: how often it is called again at once when it fails.
    :param timeout: how many seconds a call may take.
    :param unrecoverable: the exceptions after which it is not called again.
    """

    immediate_retries: int
    timeout: float
    unrecoverable: tuple[type[BaseException], ...] = ()

    def is_hopeless(self, error: BaseException) -> bool:
        return isinstance(error, (*_HOPELESS, *self.unrecoverable))


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


class Watch:
    """Ends calls that take too long, and shows a parent process which message is handled, and until when.

    An alarm ends Python code and calls into the system. Only another process can end a loop in the C code of
    a library. An alarm reaches the main thread only, on which Spark's workers call handlers.
    """

    def __init__(self, timeout: float, seen: Seen | None = None) -> None:
        self.seen = seen or Seen()
        self._timeout = timeout
        self._until = math.inf
        self._hears = False

    @contextlib.contextmanager
    def alarms(self) -> Iterator[None]:
        """In this block, calls that take too long are ended. A call is a block of the watch itself."""
        self._hears = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGALRM)
        try:
            self.listen()
            yield
        finally:
            if self._hears:
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


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A function for every message, or functions by the full names of message types."""

    functions: Function | Mapping[str, Function]
    limits: Limits
    naming: Naming = UNKNOWN

    def answers(self, message: ReceivedMessage, watch: Watch) -> tuple[list[Outgoing], int]:
        """What the function answers to a message, and when its last call began, in nanoseconds since 1970.

        :raises BaseException: what its last call raised.
        """
        if (function := self._function(message)) is None:
            return [], time.time_ns()
        left = self.limits.immediate_retries
        while True:
            started = time.time_ns()
            try:
                with watch:
                    given = replace(message, headers={**message.headers})  # it may change what it is given
                    return _listed(function(given), message), started
            except BaseException as error:  # a handler is a user's, and may raise anything
                watch.__exit__()  # again: the alarm may have rung while the block ended
                if not left or self.limits.is_hopeless(error):
                    raise
            left -= 1

    @functools.cached_property
    def packages(self) -> frozenset[str]:
        functions = [self.functions] if callable(self.functions) else self.functions.values()
        return frozenset(map(package_of, functions))

    def _function(self, message: ReceivedMessage) -> Function | None:
        """The function for a message; None for a control message for which there is none."""
        if callable(self.functions):
            return self.functions
        for each in message.types:
            if each in self.functions:
                return self.functions[each]
        if message.is_control:
            return None
        raise NoHandler(
            f"There is no handler for the type {message.type!r}; "
            f"there are handlers for {', '.join(self.functions) or 'nothing'}."
        )


def _listed(answer: object, message: ReceivedMessage) -> list[Outgoing]:
    if answer is None:
        return []
    if isinstance(answer, Answer):
        return [outgoing(answer, message)]
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise WrongAnswer(
            f"The handler answered {type(answer).__name__}; "
            "let it return nothing, Send, Reply, Publish, or a list of these."
        )
    return [outgoing(each, message) for each in answer]
