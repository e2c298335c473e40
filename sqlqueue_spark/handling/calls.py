"""Calls a handler for a message: again at once when it fails, and not for longer than it may take."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlqueue_spark.errors import HandlerTimeout, NoHandler, NoReplyAddress, WrongAnswer, WrongBody
from sqlqueue_spark.handling.answers import Answer, Outgoing, Reply, outgoing
from sqlqueue_spark.handling.received_message import ReceivedMessage
from sqlqueue_spark.handling.stack_trace import package_of

Function = Callable[[ReceivedMessage], object]
#: A function that swallows the first alarm is told again every so many seconds.
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
        """Whether to try again does not help."""
        return isinstance(error, (*_HOPELESS, *self.unrecoverable))


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A function for every message, or one for each message type.

    :param functions: the function, or functions by the full name of a type.
    """

    functions: Function | Mapping[str, Function]
    limits: Limits

    def answers(self, message: ReceivedMessage, watch: Watch) -> tuple[list[Outgoing], int]:
        """What the function answers to a message, and when its last call began, in nanoseconds since 1970.

        :raises BaseException: what its last call raised.
        """
        function = self._function(message)
        if function is None:
            return [], time.time_ns()
        left = self.limits.immediate_retries
        while True:
            started = time.time_ns()
            try:
                with watch:
                    return _listed(function(message), message), started
            except BaseException as error:  # a handler is a user's, and may raise anything
                watch.rest()  # the alarm may have rung while the block ended
                if not left or self.limits.is_hopeless(error):
                    raise
            left -= 1

    @functools.cached_property
    def packages(self) -> frozenset[str]:
        """The packages in which the functions are written."""
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
            f"There is no handler for the type {message.type!r}; there are handlers for {', '.join(self.functions) or 'nothing'}."
        )


def _listed(answer: object, message: ReceivedMessage) -> list[Outgoing]:
    """The messages that a function answers."""
    if answer is None:
        return []
    if isinstance(answer, Answer):
        return [_outgoing(answer, message)]
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise WrongAnswer(
            f"The handler answered {type(answer).__name__}; let it return nothing, Send, Reply, Publish, or a list of these."
        )
    return [_outgoing(each, message) for each in answer]


def _outgoing(answer: object, message: ReceivedMessage) -> Outgoing:
    if not isinstance(answer, Answer):
        raise WrongAnswer(
            f"The handler answered {type(answer).__name__} among its messages; let it return Send, Reply or Publish."
        )
    if isinstance(answer, Reply) and message.reply_to is None:
        raise NoReplyAddress(
            f"The message {message.id} has no ReplyToAddress, so nobody waits for the reply to it."
        )
    return outgoing(answer, message)


class Watch:
    """Ends calls that take too long, and shows another process which message is handled, and until when.

    An alarm ends Python code, and calls into the system. It does not end a loop within a library's C code; only another process
    can. None reaches another thread than the main one, on which Spark's workers call handlers; elsewhere nothing is ended.
    """

    def __init__(self, timeout: float, seen: Seen | None = None) -> None:
        """:param seen: what another process sees."""
        self.seen = seen or Seen(bytearray(Seen.SIZE))
        self._timeout = timeout
        self._until = math.inf
        self._hears = False
        self._alarm: Any = self._ring  # one object, so that it is known again

    @contextlib.contextmanager
    def alarms(self) -> Iterator[None]:
        """In this block a call, which is a block of the watch itself, is ended when it takes too long."""
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
        """Set the alarm, and do so again now and then: a handler may have set one of its own."""
        if self._hears:
            if signal.getsignal(signal.SIGALRM) is not self._alarm:
                signal.signal(signal.SIGALRM, self._alarm)
            signal.setitimer(signal.ITIMER_REAL, self._timeout)

    def __enter__(self) -> None:
        self._until = self.seen.until = time.monotonic() + self._timeout

    def __exit__(self, *_: object) -> None:
        self._until = math.inf

    def rest(self) -> None:
        """No call is made now."""
        self._until = math.inf

    def _ring(self, _: int, __: object) -> None:
        """Ends the call that is late. The alarm is not set for each call, which would take as long as a quick handler."""
        left = self._until - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS if left <= 0 else min(left, self._timeout))
        if left <= 0:
            raise HandlerTimeout("The handler took longer than handlerTimeout.")


class Seen:
    """A few bytes that two processes share: one of them handles messages there, and the other one looks at what it does."""

    SIZE = 16
    #: The position while no message was begun.
    NOTHING = -1

    def __init__(self, shared: Any) -> None:
        self._numbers = memoryview(shared)[: self.SIZE].cast("d")

    @property
    def position(self) -> int:
        """Of the message that was begun last."""
        return int(self._numbers[0])

    @position.setter
    def position(self, position: int) -> None:
        self._numbers[0] = position

    @property
    def until(self) -> float:
        """When that should be done which is done now, by the clock of all processes."""
        return self._numbers[1]

    @until.setter
    def until(self, moment: float) -> None:
        self._numbers[1] = moment
