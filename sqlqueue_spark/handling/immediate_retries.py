"""Calls a handler for a message, and calls it again at once when it fails."""

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sqlqueue_spark.errors import NoHandler, NoReplyAddress, WrongAnswer, WrongBody
from sqlqueue_spark.handling.answers import Answer, Outgoing, outgoing
from sqlqueue_spark.handling.handler_timeout import Watch
from sqlqueue_spark.handling.received_message import ReceivedMessage
from sqlqueue_spark.handling.stack_trace import package_of

Function = Callable[[ReceivedMessage], object]

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
