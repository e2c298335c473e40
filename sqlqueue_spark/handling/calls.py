"""Calls a handler for a message: again at once when it fails, and not for longer than it may take."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlqueue_spark.handling.answers import Answer, Reply, Send
from sqlqueue_spark.handling.received_message import ReceivedMessage, WrongBody

Function = Callable[[ReceivedMessage], object]
#: A function that swallows the first alarm is told again every so many seconds.
_AGAIN_SECONDS = 1.0


class HandlerTimeout(Exception):
    """A handler took longer than it may."""


class WrongAnswer(TypeError):
    """A handler answered something that is neither nothing nor messages. To try again does not help."""


class NoHandler(LookupError):
    """There is no handler for the type of a message. To try again does not help."""


class NoReplyAddress(LookupError):
    """A handler replies to a message that says nowhere to reply. To try again does not help."""


#: To try again does not help.
_HOPELESS = (WrongBody, WrongAnswer, NoHandler, NoReplyAddress)


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A function for every message, or one for each message type.

    :param functions: the function, or functions by the full name of a type.
    :param immediate_retries: how often it is called again at once when it fails.
    :param timeout: how many seconds a call may take.
    :param unrecoverable: the exceptions after which it is not called again.
    """

    functions: Function | Mapping[str, Function]
    immediate_retries: int
    timeout: float
    unrecoverable: tuple[type[BaseException], ...] = ()

    def answers(self, message: ReceivedMessage) -> list[Answer]:
        """What the function answers to a message; call it within :func:`alarms`.

        :raises Exception: what its last call raised.
        """
        function = self._function(message)
        if function is None:
            return []
        for left in range(self.immediate_retries, -1, -1):
            try:
                with _limited(self.timeout):
                    return _listed(function(message), message)
            except (Exception, SystemExit) as error:
                if not left or isinstance(error, (*_HOPELESS, *self.unrecoverable)):
                    raise
        raise AssertionError("unreachable: the last call returns or raises")

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


def _listed(answer: object, message: ReceivedMessage) -> list[Answer]:
    """The messages that a function answers."""
    if answer is None:
        return []
    many = [answer] if isinstance(answer, Send | Reply) else answer
    if isinstance(many, str | bytes | Mapping) or not isinstance(many, Iterable):
        raise WrongAnswer(
            f"The handler answered {type(answer).__name__}; let it return nothing, Send, Reply, or a list of these."
        )
    found: list[Answer] = []
    for each in many:
        if not isinstance(each, Send | Reply):
            raise WrongAnswer(
                f"The handler answered {type(each).__name__} among its messages; let it return Send or Reply."
            )
        if isinstance(each, Reply) and message.reply_to is None:
            raise NoReplyAddress(
                f"The message {message.id} has no ReplyToAddress, so nobody waits for the reply to it."
            )
        found.append(each)
    return found


@contextlib.contextmanager
def alarms() -> Iterator[None]:
    """In this block a call that takes too long is ended.

    An alarm ends Python code, and calls into the system. It does not end a loop within a library's C code. None reaches another
    thread than the main one, on which Spark's workers call handlers; elsewhere nothing is ended.
    """
    if not _reached_by_alarms():
        yield
        return
    before = signal.signal(signal.SIGALRM, _ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _limited:  # noqa: N801 -- used as a function; a class costs a tenth of a generator, and it is made for each call
    """End the block by :class:`HandlerTimeout` when it takes too long, within :func:`alarms`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds if _reached_by_alarms() else 0.0

    def __enter__(self) -> None:
        if self._seconds:
            signal.setitimer(signal.ITIMER_REAL, self._seconds, _AGAIN_SECONDS)

    def __exit__(self, *_: object) -> None:
        if self._seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _reached_by_alarms() -> bool:
    """Whether this is the main thread. For another one nobody may set an alarm: without :func:`alarms` it ends the process."""
    return threading.current_thread() is threading.main_thread()


def _ring(_: int, __: object) -> None:
    raise HandlerTimeout("The handler took longer than handlerTimeout.")
