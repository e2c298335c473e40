"""What a handler is given: a message, and the transaction in which it was received."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from tests.support.neighbour import wire_headers
from tests.support.neighbour.counts import Counts
from tests.support.neighbour.wire import Wire
from tests.support.neighbour.wire_headers import Headers


@dataclass(frozen=True, kw_only=True)
class Message:
    """A row as a handler sees it."""

    #: The row's; its RowVersion; the message's own id, which is the row's where the headers have none.
    id: UUID
    row_version: int
    message_id: str
    headers: Headers
    body: bytes


@dataclass(frozen=True)
class Handling:
    """One message while it is handled. What is sent goes out with the receive, or not at all."""

    message: Message
    #: The address of the endpoint's own queue, in the transport's full form.
    own_address: str
    _wire: Wire = field(repr=False)
    _counts: Counts = field(repr=False)

    @property
    def connection(self) -> Any:
        """The driver's connection, within the transaction of the receive.

        The neighbour commits, not the handler.
        """
        return self._wire.connection

    def reply(self, type: str, body: bytes = b"{}") -> None:
        """To where the message says; a message that does not say gets no reply."""
        if to := self.message.headers.get(wire_headers.REPLY_TO):
            self._wire.insert(to, uuid4(), wire_headers.write(self._headers(type, "Reply")), body)
            self._counts.replied += 1

    def publish(self, types: Sequence[str], body: bytes = b"{}") -> None:
        """To each queue that the subscriptions name for the event's type or one that it
        inherits from, once.
        """
        headers = wire_headers.write(self._headers(";".join(types), "Publish"))
        for address in self._wire.subscribers(types):
            self._wire.insert(address, uuid4(), headers, body)
            self._counts.published += 1

    def send(self, to: str, type: str, body: bytes = b"{}", *, after: timedelta | None = None) -> None:
        """:param after: it waits so long in the endpoint's own table of delayed messages."""
        headers = self._headers(type, "Send")
        if after is None:
            self._wire.insert(to, uuid4(), wire_headers.write(headers), body)
        else:
            self._wire.delay(
                wire_headers.write({**headers, wire_headers.FORWARD_DESTINATION: to}), body, after
            )
        self._counts.sent += 1

    def _headers(self, type: str, intent: str) -> Headers:
        received = self.message.headers
        return {
            wire_headers.MESSAGE_ID: str(uuid4()),
            "NServiceBus.MessageIntent": intent,
            wire_headers.CONVERSATION_ID: received.get(wire_headers.CONVERSATION_ID, self.message.message_id),
            wire_headers.CORRELATION_ID: received.get(wire_headers.CORRELATION_ID, self.message.message_id),
            "NServiceBus.RelatedTo": self.message.message_id,
            wire_headers.REPLY_TO: self.own_address,
            "NServiceBus.ContentType": "application/json",
            wire_headers.ENCLOSED_TYPES: type,
            "NServiceBus.TimeSent": wire_headers.now(),
        }


Handler = Callable[[Handling], None]
