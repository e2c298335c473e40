"""The answers of a handler: messages out, with the headers of relation that a .NET endpoint would set.

Formats: the headers of NServiceBus, as its replies and sends from a handler have them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlqueue_spark.errors import NoReplyAddress, WrongAnswer
from sqlqueue_spark.handling.received_message import ReceivedMessage
from sqlqueue_spark.messages.header_json import format_headers
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES, type_names
from sqlqueue_spark.messages.outgoing import (
    CONVERSATION_ID,
    CORRELATION_ID,
    MESSAGE_INTENT,
    REPLY_TO_ADDRESS,
    body_of,
)

RELATED_TO = "NServiceBus.RelatedTo"
#: By which a saga finds its reply, and the headers of its request that name the saga.
_SAGA = {f"NServiceBus.Saga{part}": f"NServiceBus.OriginatingSaga{part}" for part in ("Id", "Type")}


@dataclass(slots=True)  # not frozen: one is made for each message, and a frozen one takes three times as long
class Send:
    """A message to a queue.

    :param to: the address of the queue.
    :param type: the type of the message, for example ``Shop.ShipOrder, Shop``; it goes into
        EnclosedMessageTypes.
    :param body: bytes or text as they are, anything else as JSON.
    :param headers: further headers; they replace the headers that are set by default.
    :param id: the message id; by default an id that follows from the received message.
    """

    to: str
    type: str | None = None
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None


@dataclass(slots=True)
class Reply:
    """A message to the reply address of the received message. Its parts are those of :class:`Send`."""

    type: str | None = None
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None


@dataclass(slots=True)
class Publish:
    """An event for all that have subscribed to its type. Its parts are those of :class:`Send`.

    :param type: the type of the event, for example ``Shop.OrderPlaced, Shop``. Base types may follow, each
        behind a semicolon: ``Shop.OrderPlaced, Shop;Shop.IOrderEvent, Shop``. That is how .NET endpoints
        write EnclosedMessageTypes. Then the event also goes to all that have subscribed to one of these.
    """

    type: str
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None


Answer = Send | Reply | Publish


class Outgoing(NamedTuple):
    """An element of the column Outgoing."""

    destination: str | None
    headers: str
    body: bytes
    message_id: str | None
    reply_to: str | None
    event_type: str | None = None


def outgoing(answer: object, message: ReceivedMessage) -> Outgoing:
    """An answer as an element of the column Outgoing. Replies to it go to the queue of the received message.

    :raises WrongAnswer: it is no message, or has a part of a type that no message can have.
    :raises NoReplyAddress: it replies to a message that says nowhere to reply.
    """
    to, event = None, None
    if isinstance(answer, Send):
        intent, to = "Send", answer.to
        if not isinstance(to, str) or not to:  # type: ignore[redundant-expr] # a user's
            raise WrongAnswer(f"The handler answered a Send to {to!r}; give it the address of a queue.")
    elif isinstance(answer, Reply):
        intent, to = "Reply", message.reply_to
        if to is None:
            raise NoReplyAddress(
                f"The message {message.id} has no ReplyToAddress, so there is nowhere to send the reply."
            )
    elif isinstance(answer, Publish):
        intent, event = "Publish", answer.type
        if not isinstance(event, str) or not type_names(event):  # type: ignore[redundant-expr] # a user's
            raise WrongAnswer(
                f"The handler answered a Publish whose type is {event!r}; "
                "give it the full name of a type, by which others subscribe."
            )
    else:
        raise WrongAnswer(
            f"The handler answered {type(answer).__name__} among its messages; "
            "let it return Send, Reply or Publish."
        )
    for name, value in (("type", answer.type), ("id", answer.id)):
        if value is not None and not isinstance(value, str):
            raise WrongAnswer(
                f"The handler answered a {intent} whose {name} is {type(value).__name__}; give it a text."
            )
    if not _are_texts(answer.headers):
        raise WrongAnswer(
            f"The handler answered a {intent} with headers that are no texts by name; "
            "make texts of their values."
        )
    reply_to = None if REPLY_TO_ADDRESS in answer.headers else message.queue
    body = body_of(answer.body, "The handler answered a message whose body", WrongAnswer)
    return Outgoing(to, _headers(answer, intent, message), body, answer.id, reply_to, event)


def _headers(answer: Answer, intent: str, message: ReceivedMessage) -> str:
    """The headers of an answer as JSON: those of relation, its type, and its own, which win."""
    its_id, received = message.id, message.headers
    correlation, conversation = received.get(CORRELATION_ID), received.get(CONVERSATION_ID)
    saga = {to: received[of] for to, of in _SAGA.items() if received.get(of)} if intent == "Reply" else {}
    headers = {
        MESSAGE_INTENT: intent,
        RELATED_TO: its_id,
        CORRELATION_ID: correlation or its_id,
        **({CONVERSATION_ID: conversation} if conversation else {}),
        **saga,
        **({} if answer.type is None else {ENCLOSED_MESSAGE_TYPES: answer.type}),
    }
    return format_headers({**headers, **answer.headers})


def _are_texts(headers: object) -> bool:
    if not headers and isinstance(headers, dict):
        return True
    return isinstance(headers, Mapping) and all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    )
