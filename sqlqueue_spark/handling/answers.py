"""What a handler may answer: messages out, with the headers of relation that a .NET endpoint would set.

Formats: the headers of NServiceBus, as its replies and sends from a handler have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlqueue_spark.handling.received_message import ReceivedMessage
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES, format_headers
from sqlqueue_spark.messages.outgoing import (
    CONVERSATION_ID,
    CORRELATION_ID,
    MESSAGE_INTENT,
    REPLY_TO_ADDRESS,
)

RELATED_TO = "NServiceBus.RelatedTo"


@dataclass(frozen=True)
class Send:
    """A message to a queue.

    :param to: the address of the queue.
    :param type: the message's type, such as ``Shop.ShipOrder, Shop``; it goes into EnclosedMessageTypes.
    :param body: bytes or text as they are, anything else as JSON.
    :param headers: further headers; they win over those that are set by themselves.
    :param id: the message id; by default one that follows from the received message.
    """

    to: str
    type: str | None = None
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Reply:
    """A message back to the address to which replies of the received one go; its parts as those of :class:`Send`."""

    type: str | None = None
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None


Answer = Send | Reply


class Outgoing(NamedTuple):
    """An element of the column Outgoing."""

    destination: str | None
    headers: str
    body: bytes
    message_id: str | None
    reply_to: str | None


def outgoing(answer: Answer, message: ReceivedMessage) -> Outgoing:
    """An answer as an element of the column Outgoing. Replies to it go to the queue in which the message was received."""
    to = answer.to if isinstance(answer, Send) else message.reply_to
    headers = {
        MESSAGE_INTENT: "Send" if isinstance(answer, Send) else "Reply",
        RELATED_TO: message.id,
        CORRELATION_ID: message.headers.get(CORRELATION_ID) or message.id,
    }
    if conversation := message.headers.get(CONVERSATION_ID):
        headers[CONVERSATION_ID] = conversation
    if answer.type is not None:
        headers[ENCLOSED_MESSAGE_TYPES] = answer.type
    return Outgoing(
        to,
        format_headers({**headers, **answer.headers}),
        _body(answer.body),
        answer.id,
        None if REPLY_TO_ADDRESS in answer.headers else message.queue,
    )


def _body(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return text.encode()
