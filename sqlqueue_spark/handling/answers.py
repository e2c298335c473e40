"""The answers of a handler: messages out, with the headers of relation that a .NET endpoint would set.

Formats: the headers of NServiceBus, as its replies and sends from a handler have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring as _quoted
from typing import NamedTuple

from sqlqueue_spark.errors import WrongAnswer
from sqlqueue_spark.handling.received_message import ReceivedMessage
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES, escaped, format_headers, type_names
from sqlqueue_spark.messages.outgoing import (
    CONVERSATION_ID,
    CORRELATION_ID,
    MESSAGE_INTENT,
    REPLY_TO_ADDRESS,
    body_of,
)

RELATED_TO = "NServiceBus.RelatedTo"


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
_INTENTS = {Send: "Send", Reply: "Reply", Publish: "Publish"}
#: How headers begin in JSON, up to the value of RelatedTo; and further ones, up to their values.
_BEGINS = {kind: f'{{"{MESSAGE_INTENT}":"{intent}","{RELATED_TO}":' for kind, intent in _INTENTS.items()}
_CORRELATION, _CONVERSATION, _TYPES = (
    f',"{name}":' for name in (CORRELATION_ID, CONVERSATION_ID, ENCLOSED_MESSAGE_TYPES)
)


class Outgoing(NamedTuple):
    """An element of the column Outgoing."""

    destination: str | None
    headers: str
    body: bytes
    message_id: str | None
    reply_to: str | None
    event_type: str | None = None


def outgoing(answer: Answer, message: ReceivedMessage) -> Outgoing:
    """An answer as an element of the column Outgoing. Replies to it go to the queue of the received message.

    :raises WrongAnswer: a part of the answer is of a type that no message can have.
    """
    to = answer.to if isinstance(answer, Send) else message.reply_to
    event = None
    if isinstance(answer, Publish):
        to, event = None, answer.type
    if not (
        (isinstance(to, str) if event is None else _names_types(event))
        and _is_text(answer.type)
        and _is_text(answer.id)
        and _are_texts(answer.headers)
    ):
        raise WrongAnswer(f"The handler answered {_wrong_part(answer)}.")
    reply_to = None if REPLY_TO_ADDRESS in answer.headers else message.queue
    body = body_of(answer.body, "The handler answered a message whose body", WrongAnswer)
    return Outgoing(to, _headers(answer, message), body, answer.id, reply_to, event)


def _headers(answer: Answer, message: ReceivedMessage) -> str:
    """The headers of an answer as JSON: those of relation, its type, and its own, which win."""
    its_id, received = message.id, message.headers
    correlation, conversation = received.get(CORRELATION_ID), received.get(CONVERSATION_ID)
    if answer.headers:
        headers = {
            MESSAGE_INTENT: _INTENTS[type(answer)],
            RELATED_TO: its_id,
            CORRELATION_ID: correlation or its_id,
            **({CONVERSATION_ID: conversation} if conversation else {}),
            **({} if answer.type is None else {ENCLOSED_MESSAGE_TYPES: answer.type}),
        }
        return format_headers({**headers, **answer.headers})
    # The same text, made in a third of the time.
    related = _quoted(its_id)
    text = f"{_BEGINS[type(answer)]}{related}{_CORRELATION}{_quoted(correlation) if correlation else related}"
    if conversation:
        text = f"{text}{_CONVERSATION}{_quoted(conversation)}"
    if answer.type is not None:
        text = f"{text}{_TYPES}{_quoted(answer.type)}"
    return escaped(f"{text}}}")


def _names_types(value: object) -> bool:
    return isinstance(value, str) and bool(type_names(value))


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _are_texts(headers: object) -> bool:
    if not headers and isinstance(headers, dict):
        return True
    return isinstance(headers, Mapping) and all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    )


def _wrong_part(answer: Answer) -> str:
    kind = type(answer).__name__
    if isinstance(answer, Publish) and not _names_types(answer.type):
        return (
            f"a {kind} whose type is {answer.type!r}; "
            "give it the full name of a type, by which others subscribe"
        )
    if not isinstance(getattr(answer, "to", ""), str):
        return (
            f"a {kind} to {type(answer.to).__name__}; "  # type: ignore[union-attr] # it has one
            "give it the address of a queue as text"
        )
    for name in ("type", "id"):
        if not _is_text(value := getattr(answer, name)):
            return f"a {kind} whose {name} is {type(value).__name__}; give it a text"
    return f"a {kind} with headers that are no texts by name; make texts of their values"
